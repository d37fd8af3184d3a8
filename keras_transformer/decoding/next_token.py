"""Which token may come next, and how likely each is: what every search has in common."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.repeated_ngrams import repeating_tokens
from keras_transformer.decoding.top_tokens import top_tokens

Tensor = Any
Step = Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]]  # (token_ids, index, state) -> (logits, state)

IMPOSSIBLE = -1e9  # the score of what cannot be; finite, so that differences stay numbers


class TokenIds(NamedTuple):
    """The ids with a meaning of their own."""

    pad: int = 0
    start: int = 2
    end: int = 3


class Limits(NamedTuple):
    """What a sequence may be, whatever the model prefers; of R rows, hypotheses or sources."""

    special: TokenIds
    max_lengths: Tensor  # (R,), int32: the longest, its end token included
    min_lengths: Tensor | None = None  # (R,), int32: the shortest, its end token included
    prefix_ids: Tensor | None = None  # (R, P), int32: how it begins; padding where anything may come
    no_repeat_ngram_size: int = 0  # no n tokens come twice; 0: they may

    def repeat(self, times: int) -> "Limits":
        """The same for `times` hypotheses of every row."""

        def repeat(x: Tensor | None) -> Tensor | None:
            return None if x is None else ops.repeat(x, times, axis=0)

        return self._replace(
            max_lengths=repeat(self.max_lengths),
            min_lengths=repeat(self.min_lengths),
            prefix_ids=repeat(self.prefix_ids),
        )


def make_limits(
    max_lengths: Tensor,
    min_lengths: Tensor | None,
    prefix_ids: Tensor | None,
    no_repeat_ngram_size: int,
    special: TokenIds,
) -> Limits:
    """The limits of a search from its arguments.

    Raises:
        ValueError: If `no_repeat_ngram_size` is no integer, 0 or more.
    """
    check_no_repeat_ngram_size(no_repeat_ngram_size)
    counts = (None if x is None else ops.cast(x, "int32") for x in (max_lengths, min_lengths, prefix_ids))
    longest, shortest, prefix = counts
    return Limits(special, longest, shortest, prefix, no_repeat_ngram_size)


def check_no_repeat_ngram_size(no_repeat_ngram_size: int) -> int:
    """Returns n, or raises `ValueError` where it is no integer, 0 or more."""
    if isinstance(no_repeat_ngram_size, bool) or not isinstance(no_repeat_ngram_size, int) or no_repeat_ngram_size < 0:
        raise ValueError(
            "`no_repeat_ngram_size` must be an integer, 0 or more. "
            f"Received: no_repeat_ngram_size={no_repeat_ngram_size!r}"
        )
    return no_repeat_ngram_size


class NextTokens(NamedTuple):
    """The best continuations of every row, in no order; what cannot be has the score `IMPOSSIBLE`."""

    token_ids: Tensor  # (R, C), int32
    scores: Tensor  # (R, C), float32: log p


def best_next_tokens(logits: Tensor, count: int, ids: Tensor, index: Tensor, limits: Limits) -> NextTokens:
    """The `count` likeliest allowed tokens of every row, and at most 3 more.

    Padding and start are never generated; where a sequence has reached its longest, only the end may come. The
    probabilities are the model's own: what is ruled out keeps its share, so that a hypothesis' score is the same
    whether it was searched or given. What is ruled out is so among the few best: the vocabulary is read for them and
    for the sum of the softmax alone.

    Args:
        logits: `(R, V)`.
        count: How many continuations are asked for.
        ids: `(R, L)`, the tokens so far.
        index: Scalar int32, the position that the tokens are for.
        limits: What a sequence may be.
    """
    logits = ops.cast(logits, "float32")
    special, vocabulary_size = limits.special, logits.shape[-1]
    ranked = logits
    if limits.no_repeat_ngram_size:
        banned = repeating_tokens(ids, index, limits.no_repeat_ngram_size, nothing=special.pad)  # (R, L)
        ranked = _rule_out(logits, banned)
    never = (special.pad, special.start, special.end)  # the end: too early
    values, token_ids = top_tokens(ranked, min(count + len(never), vocabulary_size))
    largest = ops.max(values if ranked is logits else logits, axis=-1, keepdims=True)
    normalizer = largest + ops.log(ops.sum(ops.exp(logits - largest), axis=-1, keepdims=True))  # (R, 1)
    scores = values - normalizer
    allowed = ops.logical_and(scores > IMPOSSIBLE / 2, scores <= 0)  # not where the logits are no numbers
    for token in (special.pad, special.start):
        allowed = ops.logical_and(allowed, ops.not_equal(token_ids, token))
    if limits.min_lengths is not None:
        late = ops.expand_dims(index + 1 >= limits.min_lengths, 1)  # (R, 1)
        allowed = ops.logical_and(allowed, ops.logical_or(late, ops.not_equal(token_ids, special.end)))
    return _force(NextTokens(token_ids, ops.where(allowed, scores, IMPOSSIBLE)), logits, normalizer, index, limits)


def _force(best: NextTokens, logits: Tensor, normalizer: Tensor, index: Tensor, limits: Limits) -> NextTokens:
    """Where one token alone may come, the prefix's or the end, it is the first candidate, and the others cannot be."""
    special = limits.special
    must_end = ops.expand_dims(index + 1 >= limits.max_lengths, 1)  # (R, 1)
    forced_ids, forced_logits = special.end, logits[:, special.end : special.end + 1]
    is_forced = must_end
    if limits.prefix_ids is not None:
        prefix = _column(limits.prefix_ids, index, special.pad)  # (R, 1)
        is_prefix = ops.logical_and(ops.not_equal(prefix, special.pad), ops.logical_not(must_end))
        forced_ids = ops.where(is_prefix, prefix, special.end)
        forced_logits = ops.take_along_axis(logits, forced_ids, axis=1)
        is_forced = ops.logical_or(must_end, is_prefix)
    score = forced_logits - normalizer
    score = ops.where(score <= 0, score, IMPOSSIBLE)
    first = ops.equal(ops.arange(best.scores.shape[1], dtype="int32"), 0)  # (C,)
    return NextTokens(
        ops.where(is_forced, forced_ids, best.token_ids),
        ops.where(is_forced, ops.where(first, score, IMPOSSIBLE), best.scores),
    )


def _column(prefix_ids: Tensor, index: Tensor, nothing: int) -> Tensor:
    """`prefix_ids[:, index]`, `(R, 1)`; `nothing` past its end."""
    here = ops.equal(ops.arange(ops.shape(prefix_ids)[1], dtype="int32"), index)  # (P,)
    return nothing + ops.sum(ops.where(here, prefix_ids - nothing, 0), axis=1, keepdims=True)


def _rule_out(logits: Tensor, token_ids: Tensor) -> Tensor:
    """`(R, V)` with the tokens `(R, M)` of every row made impossible."""
    rows = ops.broadcast_to(ops.expand_dims(ops.arange(ops.shape(logits)[0], dtype="int32"), 1), ops.shape(token_ids))
    places = ops.reshape(ops.stack([rows, token_ids], axis=-1), (-1, 2))
    return ops.scatter_update(logits, places, ops.full((ops.shape(places)[0],), 2 * IMPOSSIBLE, dtype="float32"))


def write_token(ids: Tensor, token_ids: Tensor, index: Tensor) -> Tensor:
    """`ids`, `(..., L)`, with `token_ids`, `(...)`, at position `index`."""
    here = ops.arange(ops.shape(ids)[-1], dtype="int32") == index
    return ops.where(here, ops.expand_dims(token_ids, -1), ids)

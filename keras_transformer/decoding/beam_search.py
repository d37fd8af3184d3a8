"""Beam search: the likeliest sequences, as far as a beam of hypotheses can see them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.decoding.coverage_penalty import check_coverage_penalty, log_coverage
from keras_transformer.decoding.greedy_search import greedy_search
from keras_transformer.decoding.length_penalty import check_length_penalty, length_penalty as penalty_of
from keras_transformer.decoding.next_token import (
    IMPOSSIBLE,
    NextTokens,
    Step,
    TokenIds,
    best_next_tokens,
    make_limits,
    write_token,
)
from keras_transformer.layers.arguments import check_positive

Tensor = Any
Reorder = Callable[[Any, Tensor], Any]  # (state, parents) -> state


class Live(NamedTuple):
    """Hypotheses that go on: the last token, all tokens, log-probabilities, and the model's state."""

    token_ids: Tensor  # (B, K)
    ids: Tensor  # (B, K, L)
    scores: Tensor  # (B, K)
    state: Any


class Finished(NamedTuple):
    """The best hypotheses that have ended: tokens, and log-probabilities over the length penalty, best first."""

    ids: Tensor  # (B, K, L)
    scores: Tensor  # (B, K)


class Candidates(NamedTuple):
    """The best continuations of a row's live hypotheses, best first."""

    parents: Tensor  # (B, C), int32: which live hypothesis goes on, counted over all rows
    token_ids: Tensor  # (B, C)
    scores: Tensor  # (B, C)


def beam_search(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    max_length: int | Tensor,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    num_hypotheses: int = 1,
    special: TokenIds = TokenIds(),  # noqa: B008 (an immutable tuple)
    min_lengths: Tensor | None = None,
    prefix_ids: Tensor | None = None,
    no_repeat_ngram_size: int = 0,
    coverage_penalty: float = 0.0,
    coverage: Callable[[Any], Tensor] | None = None,
    reorder: Reorder | None = None,
) -> tuple[Tensor, Tensor]:
    """Searches every row's `num_hypotheses` best sequences with `num_beams` live hypotheses.

    A hypothesis ends when its end token is among the K best continuations of the row; live and ended hypotheses are
    kept apart, so K of them always go on. A row is done when no live hypothesis can still come in among its best
    `num_hypotheses`. What a row gets depends on that row alone. One beam is greedy search.

    Args:
        step: `step(token_ids, index, state) -> (logits, state)`: `(B * K,)` int32, a scalar int32, and the state; the
            logits of the next token, `(B * K, V)`. At index 0 the tokens are the start token.
        state: Any structure of tensors led by B; `step` sees it led by B * K. With `reorder`, whatever `step` takes.
        max_lengths: `(B,)`, integer: each row's longest sequence, its end token included. A hypothesis that gets
            there is ended there.
        max_length: L, at least the largest of `max_lengths`; an integer or a scalar tensor.
        num_beams: K.
        length_penalty: alpha of `length_penalty`: scores are log-probabilities over ((5 + length) / 6)^alpha.
        num_hypotheses: n, at most K.
        special: The ids of padding, start and end.
        min_lengths: `(B,)`, integer: each row's shortest sequence, its end token included.
        prefix_ids: `(B, P)`, integer: tokens that the sequences begin with, filled up with padding; the search goes on
            after them.
        no_repeat_ngram_size: n for which no n tokens come twice in a sequence; 0 for no such rule. The prefix may.
        coverage_penalty: beta; an ended hypothesis' score gets beta * sum over the source of log(min(coverage, 1)).
            Needs two beams and `coverage`.
        coverage: `coverage(state)`, `(B * K, S)`: how much attention each source token has got from a hypothesis so
            far, 1 where there is none to get.
        reorder: `reorder(state, parents)`: the state in which hypothesis r of B * K goes on from hypothesis
            `parents[r]`, of the same row; `(B * K,)`, int32. By default rows of every tensor are taken.

    Returns:
        ids `(B, n, L)`, int32, without the start token, ended by the end token and filled up with padding; scores
        `(B, n)`, float32, descending. Where a row has fewer than n sequences at all, the rest scores -1e9.

    Raises:
        ValueError: If an argument has an impossible value.

    Reference:
        Wu et al. (2016), section 7, equation 14; Vaswani et al. (2017), section 6.1: 4 beams, alpha 0.6.
    """
    check_positive("num_beams", num_beams)
    check_positive("num_hypotheses", num_hypotheses)
    check_length_penalty(length_penalty)
    check_coverage_penalty(coverage_penalty, num_beams)
    if coverage_penalty and coverage is None:
        raise ValueError("`coverage_penalty` needs `coverage`. Received: coverage=None")
    if num_hypotheses > num_beams:
        raise ValueError(
            "`num_hypotheses` must be at most `num_beams`. "
            f"Received: num_hypotheses={num_hypotheses}, num_beams={num_beams}"
        )
    limits = make_limits(max_lengths, min_lengths, prefix_ids, no_repeat_ngram_size, special)
    if num_beams == 1:
        return greedy_search(step, state, limits, max_length, length_penalty)
    if reorder is None:
        state = keras.tree.map_structure(lambda x: ops.repeat(ops.convert_to_tensor(x), num_beams, axis=0), state)
        reorder = _take_rows

    # A live score over the largest penalty that the row can reach bounds everything the hypothesis can become; the
    # coverage only takes away.
    largest_penalty = penalty_of(limits.max_lengths, length_penalty)  # (B,)
    hypothesis_limits = limits.repeat(num_beams)
    batch = ops.shape(limits.max_lengths)[0]
    first_rows = ops.expand_dims(ops.arange(batch, dtype="int32") * num_beams, 1)  # (B, 1)

    def unfinished(index: Tensor, live: Live, finished: Finished) -> Tensor:
        best = live.scores[:, 0]
        to_beat = finished.scores[:, num_hypotheses - 1]
        can_win = ops.logical_and(best > IMPOSSIBLE / 2, best / largest_penalty > to_beat)
        return ops.logical_and(index < max_length, ops.any(can_win))

    def body(index: Tensor, live: Live, finished: Finished) -> tuple[Tensor, Live, Finished]:
        logits, state = step(ops.reshape(live.token_ids, (-1,)), index, live.state)
        flat_ids = ops.reshape(live.ids, (-1, max_length))  # (B * K, L)
        next_tokens = best_next_tokens(logits, 2 * num_beams, flat_ids, index, hypothesis_limits)
        candidates = _best_candidates(live, next_tokens, first_rows)
        covered = coverage_penalty * log_coverage(coverage(state)) if coverage_penalty and coverage else None
        finished = _merge(finished, live, candidates, index, penalty_of(index + 1, length_penalty), covered, special)
        return index + 1, _continue(live, candidates, index, state, reorder, special), finished

    no_ids = ops.full((batch, num_beams, max_length), special.pad, dtype="int32")
    scores = ops.full((batch, num_beams), IMPOSSIBLE, dtype="float32")
    first = ops.zeros((batch, 1), dtype="float32")  # all beams start alike: one is live, the others are impossible
    live = Live(
        token_ids=ops.full((batch, num_beams), special.start, dtype="int32"),
        ids=no_ids,
        scores=ops.concatenate([first, scores[:, 1:]], axis=1),
        state=state,
    )
    start = ops.convert_to_tensor(0, dtype="int32")
    _, _, finished = ops.while_loop(unfinished, body, (start, live, Finished(no_ids, scores)))
    return finished.ids[:, :num_hypotheses], finished.scores[:, :num_hypotheses]


def _best_candidates(live: Live, next_tokens: NextTokens, first_rows: Tensor) -> Candidates:
    """The 2K best of a row: enough, since at most K of them are ends."""
    num_beams, count = live.scores.shape[1], next_tokens.scores.shape[1]
    scores = ops.expand_dims(live.scores, -1) + ops.reshape(next_tokens.scores, (-1, num_beams, count))
    scores, places = ops.top_k(ops.reshape(scores, (-1, num_beams * count)), min(2 * num_beams, num_beams * count))
    places = ops.cast(places, "int32")  # (B, 2K) in a row's K * C
    token_ids = _take(next_tokens.token_ids, places + first_rows * count)
    return Candidates(first_rows + places // count, token_ids, scores)


def _merge(
    finished: Finished,
    live: Live,
    candidates: Candidates,
    index: Tensor,
    penalty: Tensor,
    covered: Tensor | None,
    special: TokenIds,
) -> Finished:
    """Takes up the candidates among the row's K best that have ended."""
    num_beams = finished.scores.shape[1]
    parents, token_ids, scores = (x[:, :num_beams] for x in candidates)
    possible = ops.logical_and(ops.equal(token_ids, special.end), scores > IMPOSSIBLE / 2)
    ended = scores / penalty if covered is None else scores / penalty + _take(covered, parents)
    ended = ops.where(possible, ended, IMPOSSIBLE)
    # Finished ones first: top_k keeps the first of equals.
    scores, chosen = ops.top_k(ops.concatenate([finished.scores, ended], axis=1), num_beams)
    ids = write_token(_take_sequences(live.ids, parents), token_ids, index)
    ids = ops.concatenate([finished.ids, ids], axis=1)
    rows = ops.expand_dims(ops.arange(ops.shape(ids)[0], dtype="int32") * (2 * num_beams), 1)
    return Finished(_take_sequences(ids, rows + ops.cast(chosen, "int32")), scores)


def _continue(
    live: Live, candidates: Candidates, index: Tensor, state: Any, reorder: Reorder, special: TokenIds
) -> Live:
    """The K best candidates that have not ended, with their parents' state."""
    num_beams, count = live.scores.shape[1], candidates.scores.shape[1]
    ended = ops.equal(candidates.token_ids, special.end)
    scores, chosen = ops.top_k(ops.where(ended, IMPOSSIBLE, candidates.scores), num_beams)  # (B, K)
    rows = ops.expand_dims(ops.arange(ops.shape(scores)[0], dtype="int32") * count, 1)
    chosen = rows + ops.cast(chosen, "int32")
    parents, token_ids = _take(candidates.parents, chosen), _take(candidates.token_ids, chosen)
    ids = write_token(_take_sequences(live.ids, parents), token_ids, index)
    return Live(token_ids, ids, scores, reorder(state, ops.reshape(parents, (-1,))))


def _take(x: Tensor, places: Tensor) -> Tensor:
    """The elements at `places` of x, counted over all of it; in the shape of `places`."""
    return ops.take(ops.reshape(x, (-1,)), places, axis=0)


def _take_sequences(ids: Tensor, rows: Tensor) -> Tensor:
    """`(B, K, L)` and `(B, M)`, rows counted over all B * K -> `(B, M, L)`."""
    return ops.take(ops.reshape(ids, (-1, ops.shape(ids)[2])), rows, axis=0)


def _take_rows(state: Any, parents: Tensor) -> Any:
    return keras.tree.map_structure(lambda x: ops.take(x, parents, axis=0), state)

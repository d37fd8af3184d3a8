"""Beam search: the likeliest sequences, as far as a beam of hypotheses can see them."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.decoding.greedy_search import greedy_search
from keras_transformer.decoding.length_penalty import check_length_penalty, length_penalty as penalty_of
from keras_transformer.decoding.next_token import IMPOSSIBLE, Step, TokenIds, next_token_scores, write_token
from keras_transformer.layers.arguments import check_positive

Tensor = Any


class Live(NamedTuple):
    """Hypotheses that go on: the last token, all tokens, log-probabilities, and the model's state."""

    token_ids: Tensor  # (B, K)
    ids: Tensor  # (B, K, L)
    scores: Tensor  # (B, K)
    state: Any  # led by B * K


class Finished(NamedTuple):
    """The best hypotheses that have ended: tokens, and log-probabilities over the length penalty, best first."""

    ids: Tensor  # (B, K, L)
    scores: Tensor  # (B, K)


def beam_search(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    max_length: int | Tensor,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    num_hypotheses: int = 1,
    special: TokenIds = TokenIds(),  # noqa: B008 (an immutable tuple)
) -> tuple[Tensor, Tensor]:
    """Searches every row's `num_hypotheses` best sequences with `num_beams` live hypotheses.

    A hypothesis ends when its end token is among the K best continuations of the row; live and ended hypotheses are
    kept apart, so K of them always go on. A row is done when no live hypothesis can still come in among its best
    `num_hypotheses`. What a row gets depends on that row alone. One beam is greedy search.

    Args:
        step: `step(token_ids, index, state) -> (logits, state)`: `(B * K,)` int32, a scalar int32, and the state; the
            logits of the next token, `(B * K, V)`. At index 0 the tokens are the start token.
        state: Any structure of tensors led by B; `step` sees it led by B * K.
        max_lengths: `(B,)`, integer: each row's longest sequence, its end token included. A hypothesis that gets
            there is ended there.
        max_length: L, at least the largest of `max_lengths`; an integer or a scalar tensor.
        num_beams: K.
        length_penalty: alpha of `length_penalty`: scores are log-probabilities over ((5 + length) / 6)^alpha.
        num_hypotheses: n, at most K.
        special: The ids of padding, start and end.

    Returns:
        ids `(B, n, L)`, int32, without the start token, ended by the end token and filled up with padding; scores
        `(B, n)`, float32, descending. Where a row has fewer than n sequences at all, the rest scores -1e9.

    Raises:
        ValueError: If an argument has an impossible value.

    Reference:
        Wu et al. (2016), section 7; Vaswani et al. (2017), section 6.1: 4 beams, alpha 0.6.
    """
    check_positive("num_beams", num_beams)
    check_positive("num_hypotheses", num_hypotheses)
    check_length_penalty(length_penalty)
    if num_hypotheses > num_beams:
        raise ValueError(
            "`num_hypotheses` must be at most `num_beams`. "
            f"Received: num_hypotheses={num_hypotheses}, num_beams={num_beams}"
        )
    if num_beams == 1:
        return greedy_search(step, state, max_lengths, max_length, length_penalty, special)

    max_lengths = ops.cast(max_lengths, "int32")
    # A live score over the largest penalty that the row can reach bounds everything the hypothesis can become.
    largest_penalty = penalty_of(max_lengths, length_penalty)  # (B,)

    def unfinished(index: Tensor, live: Live, finished: Finished) -> Tensor:
        best = live.scores[:, 0]
        to_beat = finished.scores[:, num_hypotheses - 1]
        can_win = ops.logical_and(best > IMPOSSIBLE / 2, best / largest_penalty > to_beat)
        return ops.logical_and(index < max_length, ops.any(can_win))

    def body(index: Tensor, live: Live, finished: Finished) -> tuple[Tensor, Live, Finished]:
        logits, state = step(ops.reshape(live.token_ids, (-1,)), index, live.state)
        must_end = ops.repeat(index + 1 >= max_lengths, num_beams)
        token_scores = next_token_scores(logits, must_end, special)  # (B * K, V)
        candidates = _best_candidates(live, token_scores, index)
        finished = _merge(finished, candidates, penalty_of(index + 1, length_penalty), special)
        return index + 1, _continue(live, candidates, state, special), finished

    batch = ops.shape(max_lengths)[0]
    no_ids = ops.full((batch, num_beams, max_length), special.pad, dtype="int32")
    scores = ops.full((batch, num_beams), IMPOSSIBLE, dtype="float32")
    first = ops.zeros((batch, 1), dtype="float32")  # all beams start alike: one is live, the others are impossible
    live = Live(
        token_ids=ops.full((batch, num_beams), special.start, dtype="int32"),
        ids=no_ids,
        scores=ops.concatenate([first, scores[:, 1:]], axis=1),
        state=keras.tree.map_structure(lambda x: ops.repeat(ops.convert_to_tensor(x), num_beams, axis=0), state),
    )
    start = ops.convert_to_tensor(0, dtype="int32")
    _, _, finished = ops.while_loop(unfinished, body, (start, live, Finished(no_ids, scores)))
    return finished.ids[:, :num_hypotheses], finished.scores[:, :num_hypotheses]


class Candidates(NamedTuple):
    """The 2K best continuations of a row's live hypotheses, best first: enough, since at most K of them are ends."""

    parents: Tensor  # (B, 2K): which live hypothesis goes on
    token_ids: Tensor  # (B, 2K)
    ids: Tensor  # (B, 2K, L)
    scores: Tensor  # (B, 2K)


def _best_candidates(live: Live, token_scores: Tensor, index: Tensor) -> Candidates:
    num_beams, vocabulary_size = live.scores.shape[1], token_scores.shape[-1]
    best = min(2 * num_beams, vocabulary_size)
    # First the best of each hypothesis, then the best of a row: the wide axis is read once.
    beam_scores, beam_tokens = ops.top_k(token_scores, best)  # (B * K, 2K)
    beam_scores = ops.expand_dims(live.scores, -1) + ops.reshape(beam_scores, (-1, num_beams, best))
    scores, positions = ops.top_k(
        ops.reshape(beam_scores, (-1, num_beams * best)), min(2 * num_beams, num_beams * best)
    )
    token_ids = ops.take_along_axis(ops.reshape(beam_tokens, (-1, num_beams * best)), positions, axis=1)
    parents, token_ids = ops.cast(positions // best, "int32"), ops.cast(token_ids, "int32")
    ids = ops.take_along_axis(live.ids, ops.expand_dims(parents, -1), axis=1)
    return Candidates(parents, token_ids, write_token(ids, token_ids, index), scores)


def _merge(finished: Finished, candidates: Candidates, penalty: Tensor, special: TokenIds) -> Finished:
    """Takes up the candidates among the row's K best that have ended."""
    num_beams = finished.scores.shape[1]
    token_ids, scores = candidates.token_ids[:, :num_beams], candidates.scores[:, :num_beams]
    possible = ops.logical_and(ops.equal(token_ids, special.end), scores > IMPOSSIBLE / 2)
    ended = ops.where(possible, scores / penalty, IMPOSSIBLE)
    # Finished ones first: top_k keeps the first of equals.
    scores, chosen = ops.top_k(ops.concatenate([finished.scores, ended], axis=1), num_beams)
    ids = ops.concatenate([finished.ids, candidates.ids[:, :num_beams]], axis=1)
    return Finished(ops.take_along_axis(ids, ops.expand_dims(chosen, -1), axis=1), scores)


def _continue(live: Live, candidates: Candidates, state: Any, special: TokenIds) -> Live:
    """The K best candidates that have not ended, with their parents' state."""
    num_beams = live.scores.shape[1]
    ended = ops.equal(candidates.token_ids, special.end)
    scores, chosen = ops.top_k(ops.where(ended, IMPOSSIBLE, candidates.scores), num_beams)  # (B, K)
    parents = ops.take_along_axis(candidates.parents, chosen, axis=1)
    rows = ops.expand_dims(ops.arange(ops.shape(parents)[0], dtype="int32") * num_beams, 1)
    flat_parents = ops.reshape(rows + parents, (-1,))  # (B * K,)
    return Live(
        token_ids=ops.take_along_axis(candidates.token_ids, chosen, axis=1),
        ids=ops.take_along_axis(candidates.ids, ops.expand_dims(chosen, -1), axis=1),
        scores=scores,
        state=keras.tree.map_structure(lambda x: ops.take(x, flat_parents, axis=0), state),
    )

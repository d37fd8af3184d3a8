"""Sampling: the next token is drawn, from all tokens or from the likeliest ones."""

from typing import Any

import numpy as np
from keras import ops

from keras_transformer.decoding.next_token import IMPOSSIBLE, NextTokens, Step, TokenIds, best_next_tokens, make_limits
from keras_transformer.decoding.one_hypothesis import follow, pick
from keras_transformer.layers.arguments import check_positive
from keras_transformer.layers.random_bits import keys_of, mix

Tensor = Any


def sample(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    max_length: int | Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seeds: int | Tensor = 0,
    length_penalty: float = 0.6,
    special: TokenIds = TokenIds(),  # noqa: B008 (an immutable tuple)
    min_lengths: Tensor | None = None,
    prefix_ids: Tensor | None = None,
    no_repeat_ngram_size: int = 0,
) -> tuple[Tensor, Tensor]:
    """Draws one sequence a row: token y with probability proportional to p(y)^(1 / temperature).

    What a row gets is a function of the row and its seed: alone, in a batch, in whatever order.

    Args:
        step, state, max_lengths, max_length, length_penalty, special, min_lengths, prefix_ids, no_repeat_ngram_size:
            As in `beam_search`, with one hypothesis a row.
        temperature: Above 0; below 1 the likely becomes likelier.
        top_k: Draw among the k likeliest tokens only; `None` for all.
        top_p: Draw among the fewest likeliest tokens that together have at least this probability, after the
            temperature and among the `top_k`; above 0, 1 for all.
        seeds: One seed for all rows, or one for each, `(B,)`, integer.

    Returns:
        ids `(B, L)`, int32, ended by the end token and filled up with padding, and scores `(B,)`, float32: the model's
        own log-probability, whatever the temperature, over the length penalty.

    Raises:
        ValueError: If an argument has an impossible value.

    Reference:
        Holtzman et al. (2019), "The Curious Case of Neural Text Degeneration" (top-p); Fan et al. (2018),
        "Hierarchical Neural Story Generation" (top-k). Drawn by the largest of log p plus Gumbel noise.
    """
    if not 0 < temperature < float("inf"):
        raise ValueError(f"`temperature` must be a number above 0. Received: temperature={temperature!r}")
    if top_k is not None:
        check_positive("top_k", top_k)
    if not 0 < top_p <= 1:
        raise ValueError(f"`top_p` must be above 0 and at most 1. Received: top_p={top_p!r}")
    limits = make_limits(max_lengths, min_lengths, prefix_ids, no_repeat_ngram_size, special)
    seeds = ops.cast(ops.broadcast_to(seeds, ops.shape(limits.max_lengths)), "uint32")

    def draw(logits: Tensor, ids: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        candidates = best_next_tokens(logits, top_k or logits.shape[-1], ids, index, limits)
        candidates = _likeliest(candidates, temperature, top_k, top_p)
        noise = gumbel_noise(candidates.token_ids, seeds, index)
        allowed = candidates.scores > IMPOSSIBLE / 2
        drawn = ops.where(allowed, _tempered(candidates.scores, temperature) + noise, -float("inf"))
        return pick(candidates, ops.cast(ops.argmax(drawn, axis=-1), "int32"))

    return follow(step, state, draw, limits, max_length, length_penalty)


def _likeliest(candidates: NextTokens, temperature: float, top_k: int | None, top_p: float) -> NextTokens:
    """The candidates with all but the `top_k` and `top_p` likeliest made impossible."""
    scores, order = ops.top_k(candidates.scores, candidates.scores.shape[1])  # sorted
    token_ids = ops.take_along_axis(candidates.token_ids, ops.cast(order, "int32"), axis=1)
    kept = scores > IMPOSSIBLE / 2
    if top_k is not None:
        kept = ops.logical_and(kept, ops.arange(scores.shape[1], dtype="int32") < top_k)
    if top_p < 1:
        probabilities = ops.softmax(ops.where(kept, _tempered(scores, temperature), -3e38), axis=-1)
        before = ops.cumsum(probabilities, axis=-1) - probabilities  # what the likelier ones have together
        kept = ops.logical_and(kept, before < top_p)
    return NextTokens(token_ids, ops.where(kept, scores, IMPOSSIBLE))


def _tempered(scores: Tensor, temperature: float) -> Tensor:
    """Scores over the temperature, the first and largest of a row moved to 0: finite at every temperature."""
    return (scores - scores[:, :1]) / temperature


def gumbel_noise(token_ids: Tensor, seeds: Tensor, index: Tensor) -> Tensor:
    """-log(-log u), u uniform in (0, 1), a function of the row's seed, the position and the token.

    Args:
        token_ids: `(R, C)`, integer.
        seeds: `(R,)`, uint32.
        index: Scalar integer.

    Returns:
        `(R, C)`, float32.
    """
    call = ops.broadcast_to(ops.cast(index, "uint32"), ops.shape(seeds))
    keys = (ops.expand_dims(key, 1) for key in keys_of(seeds, call))
    bits = ops.bitwise_right_shift(mix(ops.cast(token_ids, "uint32"), *keys), np.uint32(8))  # 24 of them
    uniform = (ops.cast(bits, "float32") + 0.5) / 2.0**24
    return -ops.log(-ops.log(uniform))

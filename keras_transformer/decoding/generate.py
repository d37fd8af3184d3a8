"""From source ids to target ids: the model's encoder once, then a search or a draw over its decoder."""

from typing import Any

import keras
from keras import ops

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.sampling import sample
from keras_transformer.models.decoding_step import DecodingStep
from keras_transformer.models.hypotheses_cache import HypothesesCache
from keras_transformer.models.transformer import Transformer

Tensor = Any


def search_ids(
    model: Transformer,
    encoder_token_ids: Tensor,
    max_lengths: Tensor,
    max_length: int | Tensor,
    num_beams: int = 4,
    coverage_penalty: float = 0.0,
    cache_class: type[HypothesesCache] = HypothesesCache,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The best target sequences of every source.

    Args:
        model: A built `Transformer`.
        encoder_token_ids: `(B, S)`, integer, filled up with the model's padding id.
        max_lengths, max_length, num_beams, coverage_penalty, **options: As in `beam_search`.
        cache_class: How keys and values are kept: `InPlaceCache` where XLA does not compile the search.

    Returns:
        ids `(B, n, L)`, int32, and scores `(B, n)`, float32, as `beam_search` gives them.
    """
    with read_once(model):
        encoded = model.encode(encoder_token_ids, training=False)
        step = DecodingStep(
            model, *encoded, max_length, num_beams, cache_class=cache_class, track_coverage=coverage_penalty > 0
        )
        return beam_search(
            step,
            step.init_state(),
            max_lengths,
            max_length,
            num_beams=num_beams,
            coverage_penalty=coverage_penalty,
            coverage=step.coverage,
            reorder=step.reorder,
            **options,
        )


def sample_ids(
    model: Transformer,
    encoder_token_ids: Tensor,
    max_lengths: Tensor,
    max_length: int | Tensor,
    num_samples: int = 1,
    seed: int | Tensor = 0,
    cache_class: type[HypothesesCache] = HypothesesCache,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Target sequences drawn for every source.

    Args:
        model, encoder_token_ids, max_lengths, max_length, cache_class: As in `search_ids`.
        num_samples: n. Sample i is drawn with the seed `seed + i`, so more samples do not change the first.
        seed: An integer or a scalar integer tensor.
        **options: `temperature`, `top_k`, `top_p` and so on, as in `sample`.

    Returns:
        ids `(B, n, L)`, int32, and scores `(B, n)`, float32.
    """
    with read_once(model):
        encoded = model.encode(encoder_token_ids, training=False)
        step = DecodingStep(model, *encoded, max_length, num_samples, cache_class=cache_class)
        seeds = ops.tile(ops.arange(num_samples, dtype="int32") + seed, [ops.shape(encoder_token_ids)[0]])
        for name in ("min_lengths", "prefix_ids"):
            if options.get(name) is not None:
                options[name] = ops.repeat(options[name], num_samples, axis=0)
        ids, scores = sample(
            step, step.init_state(), ops.repeat(max_lengths, num_samples), max_length, seeds=seeds, **options
        )
    return ops.reshape(ids, (-1, num_samples, max_length)), ops.reshape(scores, (-1, num_samples))


def read_once(model: Transformer) -> keras.StatelessScope:
    """A scope in which the model's variables are the values that they have now: a loop does not read them again."""
    return keras.StatelessScope(state_mapping=[(each, ops.convert_to_tensor(each)) for each in model.variables])

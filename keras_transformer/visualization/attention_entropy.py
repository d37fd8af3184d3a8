"""How spread out attention is: the entropy of what each query attends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.visualization.attention_maps import KINDS, AttentionMaps


def attention_entropy(weights: np.ndarray) -> np.ndarray:
    """Entropy in nats of each distribution over keys: 0 if all weight is on one key, ln n if it is even on n.

    Args:
        weights: `(..., T, S)`; each row sums to 1.

    Returns:
        `(..., T)`, float64. Its exponential is a number of keys.

    Reference:
        Shannon (1948): H = -sum p ln p, where 0 ln 0 = 0.
    """
    weights = np.asarray(weights, np.float64)
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1) + 0.0  # no -0


def entropies(attentions: Sequence[AttentionMaps]) -> dict[str, np.ndarray]:
    """Of each kind the entropies of all queries of all sentences, `(layers, heads, queries)`."""
    return {
        kind: np.concatenate([attention_entropy(getattr(each, kind)) for each in attentions], axis=-1) for kind in KINDS
    }

"""What the tests of the layers share: a fixed random state, and the paper's formulas in NumPy float64."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def fixed_random_state():
    keras.utils.set_random_seed(2017)


@pytest.fixture
def rng():
    return np.random.default_rng(2017)


@pytest.fixture
def randomize(rng):
    """Gives every weight a random value: with biases of 0 and scales of 1, a forgotten one would not show."""

    def set_random_weights(layer):
        layer.set_weights([rng.normal(scale=0.4, size=weight.shape) for weight in layer.weights])
        return layer

    return set_random_weights


@pytest.fixture
def reference():
    """The formulas. Weights are lists as `get_weights()` of the layer in question gives them."""
    return SimpleNamespace(
        attention=attention,
        multi_head_attention=multi_head_attention,
        feed_forward=feed_forward,
        layer_norm=layer_norm,
        sinusoids=sinusoids,
    )


def attention(query, key, value, mask=True):
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) * mask
    total = weights.sum(axis=-1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1)
    return weights @ value, weights


def multi_head_attention(weights, query, value, mask=True):
    query_kernel, query_bias, key_kernel, key_bias, value_kernel, value_bias, output_kernel, output_bias = _float64(
        weights
    )
    heads, head_weights = [], []
    for n in range(query_kernel.shape[1]):
        head, head_weight = attention(
            query @ query_kernel[:, n] + query_bias[n],
            value @ key_kernel[:, n] + key_bias[n],
            value @ value_kernel[:, n] + value_bias[n],
            mask,
        )
        heads.append(head @ output_kernel[n])
        head_weights.append(head_weight)
    return sum(heads) + output_bias, np.stack(head_weights, axis=1)


def feed_forward(weights, sequence):
    kernel_1, bias_1, kernel_2, bias_2 = _float64(weights)
    return np.maximum(0, sequence @ kernel_1 + bias_1) @ kernel_2 + bias_2


def layer_norm(weights, sequence, epsilon=1e-6):
    scale, shift = _float64(weights)
    centred = sequence - sequence.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) * scale + shift


def sinusoids(positions, d_model):
    encoding = np.zeros((len(positions), d_model))
    for i in range(d_model // 2):
        angles = np.asarray(positions, "float64") / 10000 ** (2 * i / d_model)
        encoding[:, 2 * i], encoding[:, 2 * i + 1] = np.sin(angles), np.cos(angles)
    return encoding


def _float64(weights):
    return [np.asarray(weight, "float64") for weight in weights]

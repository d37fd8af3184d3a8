"""Joined projections are the separate ones, whatever their sizes, dtype and kernels; so are their gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import MultiHeadAttention
from keras_transformer.layers.projection import merge_heads, split_into_heads

B, T, D, N, H, H_V = 2, 5, 7, 3, 4, 6


@pytest.fixture
def attention(randomize):
    def make(**options):
        layer = MultiHeadAttention(N, H, value_dim=H_V, **options)
        layer.build((B, T, D))
        return randomize(layer)

    return make


def by_einsum(layer, x):
    layers = (layer.query_dense, layer.key_dense, layer.value_dense)
    return [tf.transpose(dense(x), (0, 2, 1, 3)) for dense in layers]


@pytest.mark.parametrize("use_bias", [True, False])
def test_three_projections_in_one_product_with_their_gradients(attention, rng, use_bias):
    layer, x = attention(use_bias=use_bias), tf.constant(rng.normal(size=(B, T, D)), "float32")
    upstream = [rng.normal(size=(B, N, T, size)).astype("float32") for size in (H, H, H_V)]
    results = []
    for project in (lambda x: split_into_heads(x, layer.query_dense, layer.key_dense, layer.value_dense),
                    lambda x: by_einsum(layer, x)):  # fmt: skip
        with tf.GradientTape() as tape:
            tape.watch(x)
            heads = project(x)
            total = sum(tf.reduce_sum(head * weight) for head, weight in zip(heads, upstream, strict=True))
        weights = layer.trainable_variables[: -1 - use_bias]
        results.append([*heads, *tape.gradient(total, [x, *(weight.value for weight in weights)])])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_heads_are_merged_as_the_einsum_does(attention, rng):
    layer, heads = attention(), rng.normal(size=(B, N, T, H_V)).astype("float32")
    expected = layer.output_dense(tf.transpose(heads, (0, 2, 1, 3)))
    np.testing.assert_allclose(merge_heads(tf.constant(heads), layer.output_dense), expected, atol=1e-5)


def test_outside_a_layers_call_the_compute_dtype_holds_too(attention, rng):
    layer = attention(dtype="mixed_bfloat16")
    key, value = layer.project_key_value(tf.constant(rng.normal(size=(B, T, D)), "float32"))
    assert key.dtype == value.dtype == tf.bfloat16


@pytest.mark.parametrize("change", ["lora", "int8"])
def test_changed_kernels_are_honoured(attention, rng, change):
    """Keras can give a projection low-rank weights beside its own, or integers with a scale."""
    layer, x = attention(), tf.constant(rng.normal(size=(B, T, D)), "float32")
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        if change == "lora":
            dense.enable_lora(2)
            dense.lora_kernel_b.assign(rng.normal(size=dense.lora_kernel_b.shape))
        else:
            dense.quantize("int8")
    heads = split_into_heads(x, layer.query_dense, layer.key_dense, layer.value_dense)
    for ours, theirs in zip(heads, by_einsum(layer, x), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    merged = tf.transpose(heads[2], (0, 2, 1, 3))
    np.testing.assert_allclose(merge_heads(heads[2], layer.output_dense), layer.output_dense(merged), atol=1e-5)


@pytest.mark.parametrize("same", [True, False])
def test_self_attention_gives_the_same_joined_or_not(attention, rng, same):
    layer, x = attention(), tf.constant(rng.normal(size=(B, T, D)), "float32")
    expected = keras.layers.MultiHeadAttention(N, H, value_dim=H_V)
    expected.build((B, T, D), (B, T, D))
    expected.set_weights(layer.get_weights())
    other = x if same else tf.identity(x)
    np.testing.assert_allclose(layer(x, other), expected(x, x), atol=1e-5)

"""Scaled dot-product attention: the formula, the hidden keys, and what 16 bits do to both."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import scaled_dot_product_attention

B, N, T, S, D_K, D_V = 2, 3, 5, 7, 11, 13


def queries_keys_values(rng, *leading):
    return (rng.normal(size=(*leading, *sizes)) for sizes in ((T, D_K), (S, D_K), (S, D_V)))


def some_mask(rng, *shape):
    """A random mask in which every row sees key 3."""
    mask = rng.random(shape) < 0.5
    mask[..., 3] = True
    return mask


def test_two_keys_worked_by_hand():
    # d_k = 4, so scores are q.k / 2. q = (2, 0, 0, 0), k1 = (ln 3, 0, 0, 0), k2 = 0: scores ln 3 and 0.
    # exp: 3 and 1, weights 3/4 and 1/4, output 3/4 * 8 + 1/4 * 4 = 7.
    query = np.array([[[2.0, 0, 0, 0]]])
    key = np.array([[[np.log(3), 0, 0, 0], [0, 0, 0, 0]]])
    value = np.array([[[8.0], [4.0]]])

    output, weights = scaled_dot_product_attention(query, key, value)

    np.testing.assert_allclose(weights, [[[0.75, 0.25]]], rtol=1e-12)
    np.testing.assert_allclose(output, [[[7.0]]], rtol=1e-12)


@pytest.mark.parametrize(
    "mask_shape",
    [None, (B, T, S), (B, 1, S), (1, T, S), (B, N, T, S), (B, 1, 1, S), (1, N, T, S)],
    ids=lambda shape: "no mask" if shape is None else f"mask {shape}",
)
def test_equals_the_papers_formula_with_heads(rng, reference, mask_shape):
    query, key, value = queries_keys_values(rng, B, N)
    mask, mask_of_heads = None, True
    if mask_shape is not None:
        mask = some_mask(rng, *mask_shape)
        mask_of_heads = mask if mask.ndim == 4 else mask[:, None]  # rank 3 holds for every head
    expected_output, expected_weights = reference.attention(query, key, value, mask_of_heads)

    output, weights = scaled_dot_product_attention(
        query.astype("float32"), key.astype("float32"), value.astype("float32"), mask
    )

    assert output.shape == (B, N, T, D_V)
    assert weights.shape == (B, N, T, S)
    np.testing.assert_allclose(output, expected_output, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


@pytest.mark.parametrize("mask_shape", [(B, T, S), (B, 1, S), (1, 1, S)], ids=str)
def test_equals_the_papers_formula_without_heads(rng, reference, mask_shape):
    query, key, value = queries_keys_values(rng, B)
    mask = some_mask(rng, *mask_shape)
    expected_output, expected_weights = reference.attention(query, key, value, mask)

    output, weights = scaled_dot_product_attention(query, key, value, mask)

    np.testing.assert_allclose(output, expected_output, atol=1e-12)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-12)


def test_weights_are_positive_sum_to_one_and_combine_the_values(rng):
    query, key, value = queries_keys_values(rng, B)

    output, weights = scaled_dot_product_attention(query, key, value)

    weights = np.asarray(weights)
    assert (weights > 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((B, T)), rtol=1e-12)
    combined = sum(weights[:, :, s, None] * value[:, None, s, :] for s in range(S))
    np.testing.assert_allclose(output, combined, atol=1e-12)


def test_hidden_keys_weigh_exactly_nothing_as_if_they_were_not_there(rng):
    query, key, value = queries_keys_values(rng, B)
    visible = [0, 2, 3, 6]
    mask = np.isin(np.arange(S), visible)[None, None, :]

    output, weights = scaled_dot_product_attention(query, key, value, mask)
    output_without, weights_without = scaled_dot_product_attention(query, key[:, visible], value[:, visible])

    assert (np.asarray(weights)[..., [1, 4, 5]] == 0).all()
    np.testing.assert_allclose(np.asarray(weights)[..., visible], weights_without, atol=1e-12)
    np.testing.assert_allclose(output, output_without, atol=1e-12)


def test_a_key_that_is_alone_gets_all_the_weight_unless_it_is_hidden(rng):
    query, key, value = queries_keys_values(rng, B)
    mask = np.array([[[True]], [[False]]])

    output, weights = scaled_dot_product_attention(query, key[:, :1], value[:, :1])
    _, masked_weights = scaled_dot_product_attention(query, key[:, :1], value[:, :1], mask)

    np.testing.assert_array_equal(weights, np.ones((B, T, 1)))
    np.testing.assert_array_equal(output, np.repeat(value[:, :1], T, axis=1))
    np.testing.assert_array_equal(masked_weights, np.broadcast_to(mask, (B, T, 1)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("leading", [(B,), (B, N)], ids=["no heads", "heads"])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(rng, dtype, leading):
    query, key, value = (tf.cast(x, dtype) for x in queries_keys_values(rng, *leading))
    mask = np.ones((B, T, S), bool)
    mask[1, 2] = False

    with tf.GradientTape() as tape:
        tape.watch([query, key, value])
        output, weights = scaled_dot_product_attention(query, key, value, mask)
        loss = tf.reduce_sum(tf.square(tf.cast(output, "float32")))
    gradients = [np.asarray(gradient, "float32") for gradient in tape.gradient(loss, [query, key, value])]

    assert (np.asarray(output, "float32")[1, ..., 2, :] == 0).all()
    assert (np.asarray(weights)[1, ..., 2, :] == 0).all()
    assert np.isfinite(np.asarray(output, "float32")).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert (gradients[0][1, ..., 2, :] == 0).all()
    assert (gradients[0][0] != 0).any()


def test_float16_scores_of_minus_50000_and_the_mask_stay_finite():
    # D_k = 1: scores are -250 * 200 = -50,000, twice, and 0 for the hidden key, which would win without the mask.
    query, key, value = ([[[-250.0]]], [[[200.0], [200.0], [0.0]]], [[[1.0], [3.0], [1000.0]]])
    mask = [[[True, True, False]]]

    output, weights = scaled_dot_product_attention(*(ops.cast(x, "float16") for x in (query, key, value)), mask)

    np.testing.assert_array_equal(weights, [[[0.5, 0.5, 0.0]]])
    np.testing.assert_array_equal(np.asarray(output, "float32"), [[[2.0]]])


def test_float16_products_beyond_float16_do_not_overflow():
    # d_k = 64: q.k = 64 * 60 * 60 = 230,400 is past float16's 65,504; divided by sqrt(64) = 8 it is 28,800.
    query, key = np.full((1, 1, 64), 60.0, "float16"), np.full((1, 2, 64), 60.0, "float16")
    value = np.array([[[1.0], [3.0]]], "float16")

    output, weights = scaled_dot_product_attention(query, key, value)

    np.testing.assert_array_equal(weights, [[[0.5, 0.5]]])
    np.testing.assert_array_equal(np.asarray(output, "float32"), [[[2.0]]])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_and_softmax_of_16_bit_arguments_are_made_in_float32(rng, reference, dtype):
    query, key, value = (tf.cast(3 * x, dtype) for x in queries_keys_values(rng, B))
    _, expected = reference.attention(*(np.asarray(x, "float64") for x in (query, key, value)))

    output, weights = scaled_dot_product_attention(query, key, value)

    assert output.dtype == dtype
    assert weights.dtype == "float32"
    np.testing.assert_allclose(weights, expected, atol=1e-5)  # scores rounded to 16 bits would be off by 1e-2


@pytest.mark.parametrize(
    ("query_shape", "key_shape", "value_shape", "message"),
    [
        ((T, D_K), (S, D_K), (S, D_V), "rank 3"),
        ((B, T, D_K), (B, N, S, D_K), (B, N, S, D_V), "rank 3"),
        ((B, T, D_K), (B, S, D_V), (B, S, D_V), "last size"),
        ((B, T, D_K), (B, S, D_K), (B, T, D_V), "length S"),
    ],
    ids=["rank 2", "ranks differ", "d_k differs", "S differs"],
)
def test_shapes_that_do_not_fit_raise_and_are_shown(query_shape, key_shape, value_shape, message):
    with pytest.raises(ValueError, match=message) as raised:
        scaled_dot_product_attention(np.zeros(query_shape), np.zeros(key_shape), np.zeros(value_shape))
    assert str(query_shape) in str(raised.value)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_mask_that_is_not_boolean_raises(rng, dtype):
    with pytest.raises(TypeError, match=rf"must be boolean.*Received: dtype={dtype}"):
        scaled_dot_product_attention(*queries_keys_values(rng, B), np.ones((B, T, S), dtype))


def test_a_mask_of_rank_2_raises_and_says_what_to_call(rng):
    with pytest.raises(ValueError, match=r"padding_mask\(token_ids\).*Received: shape=\(2, 7\)"):
        scaled_dot_product_attention(*queries_keys_values(rng, B), np.ones((B, S), bool))


@pytest.mark.parametrize(
    "mask_shape",
    [(1, T, T), (1, S, S), (B + 1, 1, S), (B, N, T, S)],
    ids=["keys", "queries", "batch", "heads where there are none"],
)
def test_a_mask_that_does_not_fit_raises_instead_of_broadcasting(rng, mask_shape):
    with pytest.raises(ValueError, match=r"mask.*Received"):
        scaled_dot_product_attention(*queries_keys_values(rng, B), np.ones(mask_shape, bool))


def test_a_mask_longer_than_the_queries_raises_instead_of_making_more_of_them(rng):
    query, key, value = queries_keys_values(rng, B)
    with pytest.raises(ValueError, match=r"mask.*Received"):
        scaled_dot_product_attention(query[:, :1], key, value, np.ones((1, S, S), bool))


def test_a_mask_of_queries_raises(rng):
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    with pytest.raises(ValueError, match="last size must be S"):
        scaled_dot_product_attention(x, x, x, mask=np.ones((2, 5, 1), bool))


def test_whole_numbers_raise_instead_of_giving_weights_of_0():
    query, key = np.float32([[[1, 0]]]), np.float32([[[1, 0], [0, 1]]])
    with pytest.raises(TypeError, match=r"must be floating point.*int"):
        scaled_dot_product_attention(query, key, np.array([[[10], [20]]]))


def test_a_key_that_is_alone_has_a_gradient_of_0(rng):
    query, key, value = (tf.constant(rng.normal(size=(2, 1, 3)).astype("float32")) for _ in range(3))
    with tf.GradientTape() as tape:
        tape.watch([query, key])
        output, _ = scaled_dot_product_attention(query, key, value)
    for gradient in tape.gradient(output, [query, key]):
        np.testing.assert_array_equal(gradient, np.zeros((2, 1, 3)))

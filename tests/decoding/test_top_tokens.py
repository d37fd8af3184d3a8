"""The few largest of a row are NumPy's, however the row is cut into pieces."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.decoding.top_tokens import top_tokens

# Primes, which cannot be cut; twice and ten times one; squares; many divisors.
SIZES = [1, 2, 5, 97, 128, 194, 1000, 7919, 8000, 10_007, 10_609, 31_990, 32_000]


def assert_largest(scores, count, values, token_ids):
    """Those of a sorted row, each at its own place: which of equals is open."""
    values, token_ids = np.asarray(values), np.asarray(token_ids)
    assert values.shape == token_ids.shape == (len(scores), count)
    assert token_ids.dtype == np.int32
    np.testing.assert_array_equal(values, -np.sort(-scores, axis=1)[:, :count])
    np.testing.assert_array_equal(values, np.take_along_axis(scores, token_ids, axis=1))
    assert all(len(set(row)) == count for row in token_ids.tolist())


@pytest.mark.parametrize("count", [1, 4, 11, 60])
@pytest.mark.parametrize("size", SIZES)
def test_they_are_numpys(size, count):
    scores = np.random.default_rng(size + count).normal(0, 5, (7, size)).astype("float32")
    count = min(count, size)
    values, token_ids = top_tokens(ops.convert_to_tensor(scores), count)
    assert_largest(scores, count, values, token_ids)
    np.testing.assert_array_equal(token_ids, np.argsort(-scores, axis=1)[:, :count])


@pytest.mark.parametrize("size", SIZES)
def test_all_of_them(size):
    scores = np.random.default_rng(size).normal(0, 5, (2, size)).astype("float32")
    assert_largest(scores, size, *top_tokens(ops.convert_to_tensor(scores), size))


@pytest.mark.parametrize("count", [1, 11])
@pytest.mark.parametrize("size", [97, 8000, 10_007, 32_000])
def test_the_largest_side_by_side_and_far_apart(size, count):
    """All in one piece; one in each piece; the first and the last."""
    scores = np.random.default_rng(1).uniform(0, 1, (3, size)).astype("float32")
    scores[0, size // 2 : size // 2 + count] += 5
    scores[1, :: -(-size // count)] += 5
    scores[2, [0, size - 1]] += 5
    assert_largest(scores, count, *top_tokens(ops.convert_to_tensor(scores), count))


@pytest.mark.parametrize("size", [97, 128, 8000, 10_007, 32_000])
def test_equal_ones(size):
    rng = np.random.default_rng(2)
    scores = rng.integers(-2, 3, (5, size)).astype("float32")
    scores[3] = 1.5
    scores[4] = np.where(rng.uniform(size=size) < 0.5, 0.0, -0.0)
    assert_largest(scores, 11, *top_tokens(ops.convert_to_tensor(scores), 11))


@pytest.mark.parametrize("size", [97, 8000, 32_000])
def test_what_is_ruled_out_comes_last_and_is_no_nan(size):
    scores = np.full((4, size), -np.inf, "float32")
    scores[1, size - 3 :] = [1, 3, 2]
    scores[2] = -2e9
    scores[2, 5] = -1e9
    scores[3] = np.finfo("float32").min
    values, token_ids = top_tokens(ops.convert_to_tensor(scores), 11)
    assert not np.isnan(values).any()
    assert_largest(scores, 11, values, token_ids)
    assert np.asarray(token_ids)[1, :3].tolist() == [size - 2, size - 1, size - 3]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("size", [97, 8000])
def test_one_graph_for_any_number_of_rows(size, jit_compile):
    signature = None if jit_compile else [tf.TensorSpec([None, size])]
    compiled = tf.function(lambda scores: top_tokens(scores, 11), signature, jit_compile=jit_compile, autograph=False)
    for rows in (1, 4):
        scores = np.random.default_rng(rows).normal(0, 5, (rows, size)).astype("float32")
        assert_largest(scores, 11, *compiled(tf.constant(scores)))
    if not jit_compile:
        assert compiled.experimental_get_tracing_count() == 1
        assert compiled(tf.zeros([0, size]))[1].shape == (0, 11)

"""The key/value cache: what is written where, and who sees it."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.cache import cache_mask, update_cache

B, N, L, H = 2, 3, 7, 5


@pytest.mark.parametrize(("index", "steps"), [(0, 1), (4, 1), (6, 1), (0, 3), (2, 3), (4, 3), (0, 7)])
def test_an_update_is_written_from_index_on_and_nothing_else_moves(rng, index, steps):
    cache, update = rng.normal(size=(B, N, L, H)), rng.normal(size=(B, N, steps, H))
    expected = cache.copy()
    expected[:, :, index : index + steps] = update

    np.testing.assert_array_equal(update_cache(cache, update, index), expected)


def test_one_trace_writes_at_every_index(rng):
    traced_update = tf.function(update_cache)
    cache, expected = tf.zeros((B, N, L, H)), np.zeros((B, N, L, H), "float32")
    for index in range(L):
        update = rng.normal(size=(B, N, 1, H)).astype("float32")
        cache = traced_update(cache, tf.constant(update), tf.constant(index))
        expected[:, :, index] = update[:, :, 0]

    np.testing.assert_array_equal(cache, expected)
    assert traced_update.experimental_get_tracing_count() == 1


def test_lengths_may_be_known_only_in_the_graph(rng):
    unknown = tf.TensorSpec((B, N, None, H), "float64")
    traced_update = tf.function(update_cache, input_signature=[unknown, unknown, tf.TensorSpec((), "int32")])
    cache, update = rng.normal(size=(B, N, L, H)), rng.normal(size=(B, N, 2, H))
    expected = cache.copy()
    expected[:, :, 3:5] = update

    np.testing.assert_array_equal(traced_update(cache, update, 3), expected)


def test_the_cache_keeps_its_dtype():
    assert update_cache(tf.zeros((B, N, L, H), "bfloat16"), tf.ones((B, N, 1, H)), 3).dtype == "bfloat16"


@pytest.mark.parametrize(("index", "steps"), [(-1, 1), (7, 1), (5, 3), (0, 8)])
def test_an_update_outside_the_cache_raises(index, steps):
    with pytest.raises(ValueError, match=rf"index={index}.*{steps}.*7"):
        update_cache(tf.zeros((B, N, L, H)), tf.zeros((B, N, steps, H)), index)


def test_one_query_sees_the_filled_positions_and_itself():
    np.testing.assert_array_equal(cache_mask(4, 1, 0), [[[True, False, False, False]]])
    np.testing.assert_array_equal(cache_mask(4, 1, 2), [[[True, True, True, False]]])
    np.testing.assert_array_equal(cache_mask(4, 1, tf.constant(3)), [[[True, True, True, True]]])


def test_several_queries_do_not_see_each_others_future():
    np.testing.assert_array_equal(
        cache_mask(5, 2, 2), [[[True, True, True, False, False], [True, True, True, True, False]]]
    )

"""The sinusoids: right at every position, and the same rotation from each to the next."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import position_rotation, positional_encoding
from keras_transformer.layers.positional_encoding import encode_positions

# Around the places where a table could end, grow, wrap or be joined.
STARTS = [0, 1, 255, 256, 1023, 1024, 1025, 2048, 5000, 10 * 1024, 100_000]


def test_positions_0_1_and_3_by_hand():
    # d_model = 4: angles pos / 10000^0 = pos and pos / 10000^(2/4) = pos / 100; sine and cosine take turns.
    encoding = positional_encoding(4, 4)

    np.testing.assert_array_equal(encoding[0], [0, 1, 0, 1])
    np.testing.assert_allclose(encoding[1], [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004], atol=1e-7)
    np.testing.assert_allclose(encoding[3], [0.1411200081, -0.9899924966, 0.0299955002, 0.9995500337], atol=1e-7)


@pytest.mark.parametrize("d_model", [2, 6, 128, 512])
def test_4096_positions_are_exact_in_float32_and_all_different(reference, d_model):
    encoding = positional_encoding(4096, d_model)

    assert encoding.dtype == "float32"
    assert len(np.unique(encoding, axis=0)) == 4096
    np.testing.assert_allclose(encoding, reference.sinusoids(range(4096), d_model), atol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 257, 1025, 100_003])
def test_any_length_will_do_and_a_row_depends_on_its_position_alone(reference, length):
    encoding = positional_encoding(length, 6)

    assert encoding.shape == (length, 6)
    np.testing.assert_array_equal(encoding, positional_encoding(length + 7, 6)[:length])
    np.testing.assert_allclose(encoding[-3:], reference.sinusoids(range(length)[-3:], 6), atol=1e-6)


@pytest.mark.parametrize("offset", [1, 2, 17, 1000, -1])
def test_moving_on_is_the_same_linear_map_from_every_position(offset):
    d_model = 8
    encoding = positional_encoding(20_000, d_model)
    positions = np.array([1, 2, 3, 7, 100, 511, 4096, 9_999, 10_000, 10_001, 12_345, 18_999])

    moved = encoding[positions] @ position_rotation(offset, d_model).T

    np.testing.assert_allclose(moved, encoding[positions + offset], atol=1e-6)


@pytest.mark.parametrize("offset", [0, 1, 5, 1000])
def test_the_linear_map_is_a_rotation(offset):
    rotation = position_rotation(offset, 6)

    np.testing.assert_allclose(rotation @ rotation.T, np.eye(6), atol=1e-12)  # keeps lengths and angles
    np.testing.assert_allclose(np.linalg.det(rotation), 1)  # and does not mirror
    np.testing.assert_allclose(rotation.T, position_rotation(-offset, 6), atol=1e-12)  # back again
    np.testing.assert_allclose(rotation @ rotation, position_rotation(2 * offset, 6), atol=1e-12)


@pytest.mark.parametrize("start", STARTS)
def test_a_start_known_outside_the_graph_is_the_table_from_there(reference, start):
    np.testing.assert_allclose(
        encode_positions(start, 7, 6), reference.sinusoids(range(start, start + 7), 6), atol=1e-6
    )


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
def test_a_start_known_only_in_the_graph_gives_the_same(jit_compile):
    from_start = tf.function(
        lambda start: encode_positions(start, 7, 6),
        input_signature=[tf.TensorSpec((), "int32")],
        jit_compile=jit_compile,
    )
    for start in STARTS:
        np.testing.assert_allclose(from_start(start), encode_positions(start, 7, 6), atol=1e-6, err_msg=f"{start=}")


def test_a_length_known_only_in_the_graph_gives_the_same():
    unknown = tf.TensorSpec((), "int32")
    encode = tf.function(lambda start, length: encode_positions(start, length, 6), input_signature=[unknown, unknown])
    for start, length in [(0, 0), (0, 1), (0, 2050), (5000, 3)]:
        np.testing.assert_allclose(encode(start, length), encode_positions(start, length, 6), atol=1e-6)


def test_the_table_cannot_be_changed_through_what_was_handed_out():
    encoding = positional_encoding(4, 4)
    encoding[:] = 0

    np.testing.assert_array_equal(positional_encoding(4, 4)[0], [0, 1, 0, 1])
    np.testing.assert_array_equal(encode_positions(0, 1, 4), [[0, 1, 0, 1]])


@pytest.mark.parametrize("d_model", [5, 0, -2, 4.0, None])
def test_a_width_that_is_not_even_and_positive_raises(d_model):
    with pytest.raises(ValueError, match=rf"`d_model` must be a positive even integer. Received: d_model={d_model}"):
        positional_encoding(3, d_model)


@pytest.mark.parametrize("length", [-1, 2.5, None])
def test_a_length_that_is_not_a_whole_number_raises(length):
    with pytest.raises(ValueError, match=rf"`length` must be an integer, 0 or more. Received: length={length}"):
        positional_encoding(length, 4)


def test_a_negative_start_raises():
    with pytest.raises(ValueError, match=r"start.*-1"):
        encode_positions(-1, 3, 4)

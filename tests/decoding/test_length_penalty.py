"""The length penalty, by hand."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import beam_search, length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [
        (1, 0.6, 1.0),  # (6/6)^0.6
        (7, 1.0, 2.0),  # 12/6
        (7, 0.5, 2**0.5),
        (19, 0.5, 2.0),  # (24/6)^0.5
        (19, 2, 16.0),
        (1000, 0.0, 1.0),
    ],
)
def test_five_and_the_length_over_six_to_the_alpha(length, alpha, expected):
    np.testing.assert_allclose(length_penalty(length, alpha), expected, rtol=1e-6)


def test_a_tensor_of_lengths_gives_float32_of_its_shape():
    penalties = length_penalty(ops.convert_to_tensor(np.int32([[1, 7, 13]])), 1.0)
    assert ops.dtype(penalties) == "float32"
    np.testing.assert_allclose(penalties, [[1.0, 2.0, 3.0]], rtol=1e-6)


@pytest.mark.parametrize("num_beams", [1, 2])
@pytest.mark.parametrize("alpha", [-0.1, float("nan"), float("inf")])
def test_an_impossible_alpha_is_refused(language, num_beams, alpha):
    tables = language.random_tables(seed=0, rows=1, max_length=2, vocabulary_size=5)
    with pytest.raises(ValueError, match=rf"0 or more and finite. Received: length_penalty={alpha}"):
        beam_search(language.step, language.state(tables), [2], 2, num_beams=num_beams, length_penalty=alpha)

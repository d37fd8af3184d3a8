"""A beam wide enough is exhaustive search; a narrow one on a hand-made chain too, and else a textbook's."""

import numpy as np
import pytest

from keras_transformer.decoding import beam_search

LETTERS = "cat"
CHAIN = {  # a 4-token Markov chain: c, a, t and the end
    "": {"c": 0.5, "a": 0.3, "t": 0.2},
    "c": {"a": 0.9, "t": 0.1},
    "a": {"t": 0.8, "c": 0.1, ".": 0.1},
    "t": {".": 0.7, "a": 0.2, "c": 0.1},
}
# "cat." = 0.5 x 0.9 x 0.8 x 0.7, and so on.
BEST_WORDS = {"cat": 0.252, "at": 0.168, "t": 0.14, "ca": 0.045}


def words(ids):
    return ["".join(LETTERS[token - 4] for token in row if token > 3) for row in np.asarray(ids)]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_best_words_of_a_hand_made_markov_chain(language, rows):
    tables = np.repeat(language.markov_chain(LETTERS, CHAIN, max_length=5), rows, axis=0)
    ids, scores = beam_search(
        language.step, language.state(tables), [5] * rows, 5, num_beams=4, length_penalty=0.0, num_hypotheses=4
    )
    for row_ids, row_scores in zip(ids, scores, strict=True):
        assert words(row_ids) == list(BEST_WORDS)
        np.testing.assert_allclose(np.exp(row_scores), list(BEST_WORDS.values()), rtol=1e-5)
        expected = language.exhaustive(tables[0], 5, alpha=0.0)[:4]
        assert [language.sequence(hypothesis) for hypothesis in row_ids] == [sequence for sequence, _ in expected]
        np.testing.assert_allclose(row_scores, [score for _, score in expected], rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("vocabulary_size", "longest"), [(5, 6), (6, 5)])
def test_a_wide_beam_is_exhaustive_search(language, vocabulary_size, longest, alpha):
    max_lengths = [longest, 1, longest - 1, 3]
    tables = language.random_tables(1, len(max_lengths), longest, vocabulary_size)
    everything = [language.exhaustive(table, limit, alpha) for table, limit in zip(tables, max_lengths, strict=True)]
    num_beams = max(map(len, everything))
    ids, scores = beam_search(
        language.step,
        language.state(tables),
        max_lengths,
        longest,
        num_beams=num_beams,
        length_penalty=alpha,
        num_hypotheses=num_beams,
    )
    assert ids.shape == (len(max_lengths), num_beams, longest)
    assert scores.shape == (len(max_lengths), num_beams)
    for row_ids, row_scores, expected in zip(ids, np.asarray(scores), everything, strict=True):
        found = [language.sequence(hypothesis) for hypothesis in row_ids[: len(expected)]]
        assert found == [sequence for sequence, _ in expected]
        np.testing.assert_allclose(row_scores[: len(expected)], [score for _, score in expected], atol=1e-5)
        # There are no more sequences than these.
        assert np.all(np.asarray(row_ids[len(expected) :]) == 0)
        assert np.all(row_scores[len(expected) :] == -1e9)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_search_goes_on_while_something_better_may_come(language, alpha):
    """Asked for its best alone, a wide beam must not stop before it has it."""
    tables = language.random_tables(seed=2, rows=40, max_length=6, vocabulary_size=5, scale=1.5)
    tables[..., 3] += 0.5  # ends come early, and better ones later
    ids, scores = beam_search(
        language.step, language.state(tables), [6] * 40, 6, num_beams=32, length_penalty=alpha, num_hypotheses=1
    )
    best = [language.exhaustive(table, 6, alpha)[0] for table in tables]
    assert [language.sequence(row[0]) for row in ids] == [sequence for sequence, _ in best]
    np.testing.assert_allclose(scores[:, 0], [score for _, score in best], atol=1e-5)
    assert len({len(sequence) for sequence, _ in best}) > 2


@pytest.mark.parametrize("num_beams", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_narrow_beam_is_the_textbooks(language, num_beams, alpha):
    """As many hypotheses go on as there are beams, also where one of the best continuations is an end."""
    max_lengths = [9, 9, 4, 7, 9, 1] * 5
    tables = language.random_tables(3, len(max_lengths), 9, vocabulary_size=8, scale=1.5)
    tables[..., 3] += 1.0
    ids, scores = beam_search(
        language.step,
        language.state(tables),
        max_lengths,
        9,
        num_beams=num_beams,
        length_penalty=alpha,
        num_hypotheses=num_beams,
    )
    for table, limit, row_ids, row_scores in zip(tables, max_lengths, ids, np.asarray(scores), strict=True):
        expected = language.textbook_beam(table, limit, alpha, num_beams)[:num_beams]
        found = [language.sequence(hypothesis) for hypothesis in row_ids[: len(expected)]]
        assert found == [sequence for sequence, _ in expected]
        np.testing.assert_allclose(row_scores[: len(expected)], [score for _, score in expected], atol=1e-5)
        assert np.all(row_scores[len(expected) :] == -1e9)

"""What a search may return, worked by hand and recomputed in float64."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import beam_search

PAD, UNK, START, END, A, B = range(6)


@pytest.fixture
def search(language):
    def search(tables, max_lengths=None, **options):
        rows, longest = tables.shape[:2]
        ids, scores = beam_search(
            language.step, language.state(tables), max_lengths or [longest] * rows, longest, **options
        )
        assert ops.dtype(ids) == "int32"
        assert ops.dtype(scores) == "float32"
        return np.asarray(ids), np.asarray(scores)

    return search


GREEDY_TRAP = {
    "": {"a": 0.6, "b": 0.4},
    "a": {"c": 0.55, "d": 0.45},  # "ac" 0.33, "ad" 0.27
    "b": {"c": 0.9, "d": 0.1},  # "bc" 0.36
    "c": {".": 1.0},
    "d": {".": 1.0},
}


@pytest.mark.parametrize(("num_beams", "best", "probability"), [(1, "ac", 0.33), (2, "bc", 0.36), (3, "bc", 0.36)])
def test_greedy_search_takes_the_likelier_token_and_two_beams_the_likelier_word(
    language, search, num_beams, best, probability
):
    tables = language.markov_chain("abcd", GREEDY_TRAP, max_length=4)
    ids, scores = search(tables, num_beams=num_beams, length_penalty=0.0)
    assert ids.tolist() == [[[4 + "abcd".index(best[0]), 4 + "abcd".index(best[1]), END, PAD]]]
    np.testing.assert_allclose(np.exp(scores), [[probability]], rtol=1e-5)


SHORT_OR_LONG = {
    "": {"a": 0.5, "b": 0.35, "e": 0.15},
    "a": {".": 0.8, "e": 0.2},  # "a.": 0.4, log -0.9163
    "b": {"c": 1.0},
    "c": {"d": 1.0},
    "d": {".": 1.0},  # "bcd.": 0.35, log -1.0498
    "e": {"e": 0.9, ".": 0.1},
}


@pytest.mark.parametrize(
    ("alpha", "best", "score"),
    [
        (0.0, [A, END], -0.916291),
        (0.5, [A, END], -0.848320),  # -0.916291 / (7/6)^0.5; "bcd." -1.049822 / (9/6)^0.5 = -0.857176
        (0.6, [B, 6, 7, END], -0.823116),  # -1.049822 / (9/6)^0.6; "a." -0.916291 / (7/6)^0.6 = -0.835343
        (1.0, [B, 6, 7, END], -0.699882),
    ],
)
@pytest.mark.parametrize("num_beams", [2, 4])
def test_the_penalty_decides_between_short_and_long(language, search, num_beams, alpha, best, score):
    """The short one is complete two steps before the long one: the search must go on for it."""
    tables = language.markov_chain("abcde", SHORT_OR_LONG, max_length=9)
    ids, scores = search(tables, num_beams=num_beams, length_penalty=alpha)
    assert ids[0, 0, : len(best)].tolist() == best
    np.testing.assert_allclose(scores, [[score]], atol=2e-6)


def test_one_beam_is_greedy(language, search):
    max_lengths = [12, 1, 5, 12, 12, 7]
    tables = language.random_tables(seed=3, rows=6, max_length=12, vocabulary_size=9)
    ids, scores = search(tables, max_lengths, num_beams=1, length_penalty=0.6)
    assert ids.shape == (6, 1, 12)
    for table, max_length, row, score in zip(tables, max_lengths, ids[:, 0], scores[:, 0], strict=True):
        expected = []
        while len(expected) < max_length and END not in expected:
            before, last = [START, START, *expected][-2:]
            logits = table[len(expected), before, last].copy()
            logits[[PAD, START]] = -np.inf
            expected.append(END if len(expected) == max_length - 1 else int(np.argmax(logits)))
        assert language.sequence(row) == tuple(expected)
        np.testing.assert_allclose(score, language.score(table, expected, 0.6), atol=1e-5)


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_scores_are_log_p_over_the_penalty(language, search, num_beams, alpha):
    tables = language.random_tables(seed=4, rows=7, max_length=20, vocabulary_size=11)
    ids, scores = search(tables, num_beams=num_beams, length_penalty=alpha, num_hypotheses=num_beams)
    lengths = set()
    for table, hypotheses, row_scores in zip(tables, ids, scores, strict=True):
        sequences = [language.sequence(hypothesis) for hypothesis in hypotheses]
        lengths |= set(map(len, sequences))
        np.testing.assert_allclose(
            row_scores, [language.score(table, sequence, alpha) for sequence in sequences], atol=2e-5
        )
    assert len(lengths) > 1


def test_hypotheses_are_distinct_and_descending(language, search):
    tables = language.random_tables(seed=5, rows=100, max_length=8, vocabulary_size=7)
    ids, scores = search(tables, num_beams=5, num_hypotheses=5)
    assert all(len({language.sequence(hypothesis) for hypothesis in row}) == 5 for row in ids)
    assert np.all(np.diff(scores, axis=1) <= 0)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_how_many_are_asked_for_does_not_change_the_first_ones(language, search, alpha):
    """With one asked for the search stops as soon as nothing can win; with four it goes on."""
    tables = language.random_tables(seed=6, rows=50, max_length=15, vocabulary_size=8)
    tables[..., END] += 1.5
    all_ids, all_scores = search(tables, num_beams=4, length_penalty=alpha, num_hypotheses=4)
    for num_hypotheses in (1, 2, 3):
        ids, scores = search(tables, num_beams=4, length_penalty=alpha, num_hypotheses=num_hypotheses)
        np.testing.assert_array_equal(ids, all_ids[:, :num_hypotheses])
        np.testing.assert_array_equal(scores, all_scores[:, :num_hypotheses])


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_row_gets_alone_what_it_gets_in_a_batch(language, search, num_beams):
    max_lengths = [10, 3, 7, 10, 1]
    tables = language.random_tables(seed=7, rows=5, max_length=10, vocabulary_size=8)
    ids, scores = search(tables, max_lengths, num_beams=num_beams, num_hypotheses=num_beams)
    for row, max_length in enumerate(max_lengths):
        alone, alone_scores = search(
            tables[row : row + 1, :max_length], [max_length], num_beams=num_beams, num_hypotheses=num_beams
        )
        np.testing.assert_array_equal(ids[row, :, :max_length], alone[0])
        assert np.all(ids[row, :, max_length:] == PAD)
        np.testing.assert_allclose(scores[row], alone_scores[0], atol=1e-6)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_padding_and_start_are_never_generated(language, search, num_beams):
    tables = language.random_tables(seed=8, rows=20, max_length=9, vocabulary_size=7)
    tables[..., [PAD, START]] += 10  # by far the largest logits
    ids, scores = search(tables, num_beams=num_beams, num_hypotheses=num_beams)
    assert START not in ids
    for table, row, row_scores in zip(tables, ids, scores, strict=True):
        for hypothesis, score in zip(row, row_scores, strict=True):
            sequence = language.sequence(hypothesis)  # padding after the end alone
            assert PAD not in sequence
            # What is ruled out keeps its probability: a hypothesis scores the same searched or given.
            np.testing.assert_allclose(score, language.score(table, sequence, 0.6), rtol=1e-5)


@pytest.mark.parametrize("num_beams", [1, 2, 4])
def test_a_hypothesis_at_its_longest_is_ended(language, search, num_beams):
    tables = language.random_tables(seed=9, rows=3, max_length=8, vocabulary_size=7)
    tables[..., END] -= 40
    max_lengths = [8, 2, 5]
    ids, scores = search(tables, max_lengths, num_beams=num_beams, num_hypotheses=num_beams, length_penalty=0.0)
    assert np.all(np.isfinite(scores))
    for table, max_length, row, score in zip(tables, max_lengths, ids, scores, strict=True):
        sequence = language.sequence(row[0])
        assert len(sequence) == max_length
        np.testing.assert_allclose(score[0], language.log_probability(table, sequence), rtol=1e-5)


def test_the_search_stops_when_nothing_can_win(language):
    tables = language.markov_chain("ab", {"": {"a": 0.9, "b": 0.1}, "a": {".": 1.0}, "b": {"b": 1.0}}, max_length=200)
    steps = []

    def step(token_ids, index, state):
        steps.append(int(index))
        return language.step(token_ids, index, state)

    for num_beams in (1, 2):
        steps.clear()
        beam_search(step, language.state(tables), [200], 200, num_beams=num_beams, length_penalty=0.0)
        assert steps == [0, 1]


def test_the_state_goes_with_its_hypothesis(language):
    """Logits made of all tokens so far, which only the state knows: any mix-up shows in the score."""
    rows, longest, vocabulary_size = 4, 7, 9
    weights = np.random.default_rng(10).normal(0, 1.5, (longest, vocabulary_size, vocabulary_size)).astype("float32")

    def step(token_ids, index, state):
        (history,), [seen] = state["nested"]
        here = ops.expand_dims(ops.arange(longest) == index, 0)
        history = ops.where(here, ops.expand_dims(token_ids, 1), history)
        one_hot = ops.one_hot(history, vocabulary_size, dtype="float32")  # id -1, nothing yet, is all zeros
        return ops.einsum("rlt,ltv->rv", one_hot, weights), {"nested": ((history,), [seen + 1])}

    state = {"nested": ((np.full((rows, longest), -1, "int32"),), [np.zeros((rows, 2, 3), "float32")])}
    ids, scores = beam_search(step, state, [longest] * rows, longest, num_beams=4, num_hypotheses=4)
    for row, row_scores in zip(np.asarray(ids), np.asarray(scores), strict=True):
        for hypothesis, score in zip(row, row_scores, strict=True):
            sequence = language.sequence(hypothesis)
            log_p = 0.0
            for position, token in enumerate(sequence):
                history = (START, *sequence[:position])
                logits = sum(weights[place, seen].astype("float64") for place, seen in enumerate(history))
                log_p += logits[token] - np.log(np.exp(logits).sum())
            np.testing.assert_allclose(score, log_p / ((5 + len(sequence)) / 6) ** 0.6, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "`num_beams` must be a positive integer. Received: num_beams=0"),
        ({"num_beams": 2.0}, "`num_beams` must be a positive integer. Received: num_beams=2.0"),
        ({"num_hypotheses": 0}, "`num_hypotheses` must be a positive integer. Received: num_hypotheses=0"),
        ({"num_hypotheses": 5}, "at most `num_beams`. Received: num_hypotheses=5, num_beams=4"),
        ({"num_beams": 1, "num_hypotheses": 2}, "at most `num_beams`. Received: num_hypotheses=2, num_beams=1"),
    ],
)
def test_impossible_arguments_are_named(language, search, options, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        search(language.random_tables(seed=0, rows=1, max_length=2, vocabulary_size=5), **options)

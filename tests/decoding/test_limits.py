"""Limits on what a search may return, against every sequence that obeys them and a textbook's beam in float64."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding import beam_search

PAD, UNK, START, END, A, B, C, D = range(8)


class Limits(NamedTuple):
    """Those of one row."""

    longest: int
    shortest: int = 1
    prefix: tuple = ()  # PAD where anything may come


EVERY_KIND = [  # with and without prefix, short and long, together in a batch
    Limits(5),
    Limits(5, shortest=4),
    Limits(5, prefix=(A, UNK)),
    Limits(5, shortest=5, prefix=(UNK, UNK, UNK)),
    Limits(5, prefix=(PAD, A)),
    Limits(3, shortest=2, prefix=(A, A, UNK, A)),  # longer than the row may be
    Limits(4, prefix=(A, END)),
    Limits(1, shortest=3),  # the longest wins
]


def arguments(limits):
    width = max(len(row.prefix) for row in limits)
    return {
        "max_lengths": np.int32([row.longest for row in limits]),
        "min_lengths": np.int32([row.shortest for row in limits]),
        "prefix_ids": np.int32([[*row.prefix, *[PAD] * (width - len(row.prefix))] for row in limits]),
    }


@pytest.fixture
def search(language):
    def search(tables, limits, **options):
        ids, scores = beam_search(
            language.step, language.state(tables), max_length=tables.shape[1], **arguments(limits), **options
        )
        return np.asarray(ids), np.asarray(scores)

    return search


def ngrams(sequence, size):
    return [tuple(sequence[place : place + size]) for place in range(len(sequence) - size + 1)]


def forced(limits, position):
    """The only token that may come at a position, or None."""
    if position == limits.longest - 1:
        return END
    prefix = dict(enumerate(limits.prefix))
    return prefix.get(position, PAD) or None


def obeys(sequence, limits, size):
    """Whether a search may return a sequence, by the definition of each rule."""
    free = [place for place in range(len(sequence)) if forced(limits, place) is None]
    for place, token in enumerate(sequence):
        if forced(limits, place) not in (None, token):
            return False
    if sequence[-1] == END and len(sequence) < limits.shortest and len(sequence) - 1 in free:
        return False
    ends = {place: tuple(sequence[place - size + 1 : place + 1]) for place in range(size - 1, len(sequence))}
    return not size or all(
        ends[place] not in ngrams(sequence[:place], size) for place in free if place in ends
    )  # a forced token may repeat


def allowed(history, limits, size, vocabulary_size):
    token = forced(limits, len(history))
    every = [token] if token is not None else sorted(set(range(vocabulary_size)) - {PAD, START})
    return [
        token
        for token in every
        if obeys((*history, token), limits._replace(shortest=1), size)
        and (token != END or token == forced(limits, len(history)) or len(history) + 1 >= limits.shortest)
    ]


def log_p(language, table, history, token):
    return language.log_probability(table, (*history, token)) - language.log_probability(table, history)


def textbook(language, table, limits, size, num_beams, alpha=0.6):
    """A beam search that never stops early: the best ended hypotheses, and their scores."""
    live, ended = [((), 0.0)], []
    while live and len(live[0][0]) < limits.longest:
        candidates = [
            ((*history, token), score + log_p(language, table, history, token))
            for history, score in live
            for token in allowed(history, limits, size, table.shape[-1])
        ]
        candidates.sort(key=lambda pair: -pair[1])
        ended += [pair for pair in candidates[:num_beams] if pair[0][-1] == END]
        live = [pair for pair in candidates if pair[0][-1] != END][:num_beams]
    scored = [(sequence, score / ((5 + len(sequence)) / 6) ** alpha) for sequence, score in ended]
    return sorted(scored, key=lambda pair: -pair[1])[:num_beams]


def assert_found(language, ids, scores, expected):
    found = [language.sequence(row) for row in ids[: len(expected)]]
    assert found == [sequence for sequence, _ in expected]
    np.testing.assert_allclose(scores[: len(expected)], [score for _, score in expected], atol=2e-5)
    assert np.all(ids[len(expected) :] == PAD)
    assert np.all(scores[len(expected) :] == -1e9)  # there are no more


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_a_wide_beam_is_exhaustive_search_over_what_obeys(language, search, size):
    tables = language.random_tables(1, len(EVERY_KIND), 5, vocabulary_size=6)
    ids, scores = search(tables, EVERY_KIND, num_beams=121, num_hypotheses=121, no_repeat_ngram_size=size)
    numbers = []
    for table, limits, row_ids, row_scores in zip(tables, EVERY_KIND, ids, scores, strict=True):
        everything = language.exhaustive(table, limits.longest, 0.6)
        expected = [pair for pair in everything if obeys(pair[0], limits, size)]
        assert_found(language, row_ids, row_scores, expected)
        numbers.append(len(expected))
    if size == 0:
        # 1 + 3 + 9 + 27 + 81; those of 4 and 5; 27 less ...; one that is forced, and so on.
        assert numbers == [121, 108, 13, 3, 40, 1, 1, 1]


@pytest.mark.parametrize("num_beams", [2, 4])
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_a_narrow_beam_is_the_textbooks(language, search, num_beams, size):
    limits = [
        Limits(9),
        Limits(9, shortest=6),
        Limits(8, prefix=(A, B, C)),
        Limits(7, shortest=6, prefix=(A, A, A, B)),
        Limits(2, shortest=2),
    ] * 3
    tables = language.random_tables(3, len(limits), 9, vocabulary_size=9, scale=1.5)
    tables[..., END] += 1.0
    ids, scores = search(tables, limits, num_beams=num_beams, num_hypotheses=num_beams, no_repeat_ngram_size=size)
    for table, row, row_ids, row_scores in zip(tables, limits, ids, scores, strict=True):
        assert_found(language, row_ids, row_scores, textbook(language, table, row, size, num_beams))


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_one_beam_takes_the_likeliest_that_is_allowed(language, search, size):
    limits = [Limits(9), Limits(9, shortest=6), Limits(8, prefix=(A, B, C)), Limits(7, 6, (A, A, A, B)), Limits(2, 2)]
    tables = language.random_tables(4, len(limits), 9, vocabulary_size=11)
    tables[..., C] += 2.0  # would come again and again
    ids, scores = search(tables, limits, num_beams=1, no_repeat_ngram_size=size)
    for table, row, (row_ids,), (score,) in zip(tables, limits, ids, scores, strict=True):
        expected = ()
        while END not in expected:
            tokens = allowed(expected, row, size, 11)
            expected += (max(tokens, key=lambda token: log_p(language, table, expected, token)),)
        assert language.sequence(row_ids) == expected
        np.testing.assert_allclose(score, language.score(table, expected, 0.6), atol=2e-5)


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("size", [0, 2])
def test_a_row_gets_alone_what_it_gets_in_a_batch(language, search, num_beams, size):
    options = {"num_beams": num_beams, "num_hypotheses": num_beams, "no_repeat_ngram_size": size}
    tables = language.random_tables(5, len(EVERY_KIND), 5, vocabulary_size=9)
    ids, scores = search(tables, EVERY_KIND, **options)
    for row, limits in enumerate(EVERY_KIND):
        alone, alone_scores = search(tables[row : row + 1, : limits.longest], [limits], **options)
        np.testing.assert_array_equal(ids[row, :, : limits.longest], alone[0])
        np.testing.assert_allclose(scores[row], alone_scores[0], atol=1e-6)


CHAIN = {  # after a comes a, mostly
    "": {"a": 0.5, "b": 0.3, ".": 0.2},
    "a": {"a": 0.6, "b": 0.3, ".": 0.1},
    "b": {"a": 0.5, "b": 0.1, ".": 0.4},
}


@pytest.mark.parametrize(
    ("limits", "size", "greedy", "best"),
    [
        (Limits(4), 1, ("ab.", 0.5 * 0.3 * 0.4), (".", 0.2)),
        (Limits(4, shortest=3), 1, ("ab.", 0.5 * 0.3 * 0.4), ("ab.", 0.5 * 0.3 * 0.4)),
        (Limits(6, prefix=(B, B, B)), 1, ("bbba.", 0.3 * 0.1**2 * 0.5 * 0.1), ("bbb.", 0.3 * 0.1**2 * 0.4)),
        (Limits(6, shortest=5), 2, ("aaba.", 0.5 * 0.6 * 0.3 * 0.5 * 0.1), ("baab.", 0.3 * 0.5 * 0.6 * 0.3 * 0.4)),
        (Limits(4, prefix=(B, A, B)), 0, ("bab.", 0.3 * 0.5 * 0.3 * 0.4), ("bab.", 0.3 * 0.5 * 0.3 * 0.4)),
        (Limits(4, 4, (B, PAD, B)), 0, ("bab.", 0.3 * 0.5 * 0.3 * 0.4), ("bab.", 0.3 * 0.5 * 0.3 * 0.4)),
    ],
)
def test_by_hand(language, search, limits, size, greedy, best):
    table = language.markov_chain("ab", CHAIN, max_length=6)
    for num_beams, (word, probability) in ((1, greedy), (8, best)):
        ids, scores = search(table, [limits], num_beams=num_beams, length_penalty=0.0, no_repeat_ngram_size=size)
        assert language.sequence(ids[0, 0]) == tuple({"a": A, "b": B, ".": END}[letter] for letter in word)
        np.testing.assert_allclose(np.exp(scores[0, 0]), probability, rtol=1e-4)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_three_forced_tokens_and_then_the_search_goes_on(language, search, num_beams):
    """Also tokens that would never come: the unlikely, and the start."""
    prefixes = [(D, D, D), (START, UNK, START), (), (A, D, C)]
    tables = language.random_tables(6, len(prefixes), 8, vocabulary_size=9)
    tables[..., D] -= 60
    ids, scores = search(tables, [Limits(8, prefix=prefix) for prefix in prefixes], num_beams=num_beams)
    for table, prefix, (row_ids,), (score,) in zip(tables, prefixes, ids, scores, strict=True):
        sequence = language.sequence(row_ids)
        assert sequence[: len(prefix)] == prefix
        assert D not in sequence[len(prefix) :]
        assert START not in sequence[len(prefix) :]
        np.testing.assert_allclose(score, language.score(table, sequence, 0.6), rtol=1e-5)
        expected = textbook(language, table, Limits(8, prefix=prefix), 0, num_beams)
        assert num_beams == 1 or sequence == expected[0][0]


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_comes_twice_in_what_loves_to_repeat(language, search, num_beams, size):
    tables = language.random_tables(7, 8, 14, vocabulary_size=30)
    tables[..., END] -= 5
    for token in (A, B):
        tables[..., token] += 8
    ids, _ = search(tables, [Limits(14)] * 8, num_beams=num_beams, no_repeat_ngram_size=size)
    free, _ = search(tables, [Limits(14)] * 8, num_beams=num_beams)
    sequences = [language.sequence(row[0]) for row in ids]
    assert all(len(set(ngrams(sequence, size))) == len(ngrams(sequence, size)) for sequence in sequences)
    assert any(len(set(ngrams(row[0].tolist(), size))) < 15 - size for row in free)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_what_is_ruled_out_keeps_its_share_however_large(language, search, num_beams):
    """A is e^200 times as likely as anything else, and comes once: the others score -200 each, and are numbers."""
    tables = language.random_tables(10, 3, 5, vocabulary_size=12)
    tables[..., A] += 200
    ids, scores = search(tables, [Limits(5, shortest=5)] * 3, num_beams=num_beams, no_repeat_ngram_size=1)
    for table, (row_ids,), (score,) in zip(tables, ids, scores, strict=True):
        sequence = language.sequence(row_ids)
        assert len(set(sequence)) == 5
        assert A in sequence
        np.testing.assert_allclose(score, language.score(table, sequence, 0.6), rtol=1e-5)


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_graph(language, search, num_beams, jit_compile):
    options = {"num_beams": num_beams, "num_hypotheses": num_beams, "no_repeat_ngram_size": 2}
    tables = language.random_tables(8, len(EVERY_KIND), 5, vocabulary_size=7)
    tables[..., [PAD, START]] += 10

    @tf.function(jit_compile=jit_compile, autograph=False)
    def compiled(tables, **limits):
        return beam_search(language.step, language.state(tables), max_length=5, **limits, **options)

    ids, scores = compiled(tf.constant(tables), **{k: tf.constant(v) for k, v in arguments(EVERY_KIND).items()})
    expected, expected_scores = search(tables, EVERY_KIND, **options)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    assert START not in expected


@pytest.mark.parametrize("num_beams", [1, 4])
def test_where_no_sequence_obeys_there_is_none(language, search, num_beams):
    """Three different letters and the end are four tokens at most, and six are asked for."""
    tables = language.random_tables(9, 2, 7, vocabulary_size=6)
    ids, scores = search(tables, [Limits(7, shortest=6), Limits(7)], num_beams=num_beams, no_repeat_ngram_size=1)
    assert np.all(ids[0] == PAD)
    assert scores[0] == -1e9
    assert scores[1] > -100


@pytest.mark.parametrize("num_beams", [1, 2])
@pytest.mark.parametrize("size", [-1, 1.0, True, "2", None])
def test_an_impossible_ngram_size_is_named(language, search, num_beams, size):
    tables = language.random_tables(0, 1, 2, vocabulary_size=5)
    with pytest.raises(ValueError, match=rf"`no_repeat_ngram_size` must be an integer.*_size={size!r}"):
        search(tables, [Limits(2)], num_beams=num_beams, no_repeat_ngram_size=size)

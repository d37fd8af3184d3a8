"""The coverage penalty against equation 14 of Wu et al. (2016), with a step that looks where a table says."""

import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.decoding import beam_search
from keras_transformer.decoding.coverage_penalty import log_coverage

PAD, UNK, START, END, A, B = range(6)
SOURCES = (4, 2, 1, 4)  # tokens of the source; the rest of 4 is padding


def random_attention(seed, longest, vocabulary_size, sources=SOURCES):
    """`(B, L, V, S)`: where a step looks after a token, 0 on padding."""
    shape = (len(sources), longest, vocabulary_size, max(sources))
    weights = np.exp(np.random.default_rng(seed).normal(0, 2, shape)).astype("float32")
    weights *= (np.arange(max(sources)) < np.array(sources)[:, None])[:, None, None]
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture
def search(language):
    def step(token_ids, index, state):
        logits, inner = language.step(token_ids, index, state["language"])
        now = ops.take(state["attention"], index, axis=1)  # (R, V, S)
        seen = ops.einsum("rv,rvs->rs", ops.one_hot(token_ids, now.shape[1], dtype="float32"), now)
        return logits, {**state, "language": inner, "seen": state["seen"] + seen}

    def search(tables, attention, max_lengths, **options):
        padding = ops.cast(ops.sum(attention, axis=(1, 2)) == 0, "float32")  # (B, S)
        state = {"language": language.state(tables), "attention": attention, "seen": padding}
        options = {"coverage": lambda state: state["seen"], **options}
        return beam_search(step, state, max_lengths, tables.shape[1], **options)

    return search


def coverage_score(attention, sequence, beta):
    """beta * sum over the source of log(min(sum over the target of attention, 1))."""
    inputs = (START, *sequence[:-1])
    seen = sum(attention[place, token].astype("float64") for place, token in enumerate(inputs))
    return beta * sum(math.log(min(each, 1.0)) for each in seen if each > 0)


def assert_found(language, ids, scores, expected):
    found = [language.sequence(row) for row in np.asarray(ids)[: len(expected)]]
    assert found == [sequence for sequence, _ in expected]
    np.testing.assert_allclose(scores[: len(expected)], [score for _, score in expected], atol=3e-5)


def test_log_coverage_by_hand():
    covered = log_coverage(np.float32([[0.5, 2.0, 1.0, 0.25], [1.0, 1.0, 7.0, 1.5], [0.0, 1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(covered, [math.log(0.125), 0.0, math.log(1e-6)], rtol=1e-6)
    assert ops.dtype(log_coverage(ops.ones((1, 2), "bfloat16"))) == "float32"


@pytest.mark.parametrize(
    ("beta", "best", "score"),
    [
        (0.0, A, math.log(0.6)),
        (0.2, A, math.log(0.6) + 0.2 * math.log(0.4)),  # -0.694 against -0.916 + 0.2 * log(0.9) = -0.937
        (0.6, B, math.log(0.4) + 0.6 * math.log(0.9)),  # -0.980 against -1.061
    ],
)
def test_what_has_not_looked_at_its_source_loses(language, search, beta, best, score):
    """ "a." is likelier, and has given the second token 0.1 + 0.3 of its attention; "b." 0.1 + 0.8."""
    tables = language.markov_chain("ab", {"": {"a": 0.6, "b": 0.4}, "a": {".": 1.0}, "b": {".": 1.0}}, max_length=3)
    attention = np.zeros((1, 3, tables.shape[-1], 2), "float32")
    attention[0, 0, START], attention[0, 1, A], attention[0, 1, B] = [0.9, 0.1], [0.7, 0.3], [0.2, 0.8]
    ids, scores = search(tables, attention, [3], num_beams=2, length_penalty=0.0, coverage_penalty=beta)
    assert np.asarray(ids).tolist() == [[[best, END, PAD]]]
    np.testing.assert_allclose(scores, [[score]], rtol=1e-5)


@pytest.mark.parametrize("beta", [0.2, 1.0])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_wide_beam_is_exhaustive_search_by_equation_14(language, search, alpha, beta):
    max_lengths = [5, 4, 5, 3]
    tables = language.random_tables(1, 4, 5, vocabulary_size=6, scale=1.0)
    attention = random_attention(2, 5, vocabulary_size=6)
    options = {"num_beams": 121, "length_penalty": alpha, "coverage_penalty": beta}
    ids, scores = search(tables, attention, max_lengths, num_hypotheses=121, **options)
    first, first_scores = search(tables, attention, max_lengths, **options)
    another = 0
    for row, longest in enumerate(max_lengths):
        plain = language.exhaustive(tables[row], longest, alpha)
        scored = [(sequence, score + coverage_score(attention[row], sequence, beta)) for sequence, score in plain]
        scored.sort(key=lambda pair: -pair[1])
        assert_found(language, ids[row], np.asarray(scores)[row], scored)
        # Asked for one it may stop early, and must not too early.
        assert_found(language, first[row], np.asarray(first_scores)[row], scored[:1])
        another += [sequence for sequence, _ in scored] != [sequence for sequence, _ in plain]
    assert another


@pytest.mark.parametrize("num_beams", [2, 4])
def test_a_narrow_beam_is_the_textbooks(language, search, num_beams):
    """Alone and in a batch: the coverage goes with its hypothesis."""
    max_lengths = [8, 8, 4, 6]
    tables = language.random_tables(3, 4, 8, vocabulary_size=9, scale=1.5)
    tables[..., END] += 1.0
    attention = random_attention(4, 8, vocabulary_size=9)
    options = {"num_beams": num_beams, "num_hypotheses": num_beams, "coverage_penalty": 0.4}
    ids, scores = search(tables, attention, max_lengths, **options)
    for row, longest in enumerate(max_lengths):
        ended = language.textbook_beam(tables[row], longest, 0.6, num_beams)
        expected = [(sequence, score + coverage_score(attention[row], sequence, 0.4)) for sequence, score in ended]
        expected = sorted(expected, key=lambda pair: -pair[1])[:num_beams]
        assert_found(language, ids[row], np.asarray(scores)[row], expected)
        alone = slice(row, row + 1)
        alone_ids, alone_scores = search(tables[alone], attention[alone], [longest], **options)
        np.testing.assert_array_equal(alone_ids[0], ids[row])
        np.testing.assert_allclose(alone_scores[0], scores[row], atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_graph(language, search, jit_compile):
    tables, attention = language.random_tables(5, 4, 6, vocabulary_size=7), random_attention(6, 6, vocabulary_size=7)
    options = {"num_beams": 3, "num_hypotheses": 3, "coverage_penalty": 0.5}
    compiled = tf.function(lambda *inputs: search(*inputs, **options), jit_compile=jit_compile, autograph=False)
    ids, scores = compiled(tf.constant(tables), tf.constant(attention), tf.constant([6, 3, 1, 5]))
    expected, expected_scores = search(tables, attention, [6, 3, 1, 5], **options)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage_penalty": -0.1}, "must be 0 or more and finite. Received: coverage_penalty=-0.1"),
        ({"coverage_penalty": math.inf}, "must be 0 or more and finite. Received: coverage_penalty=inf"),
        ({"coverage_penalty": math.nan}, "must be 0 or more and finite. Received: coverage_penalty=nan"),
        ({"coverage_penalty": 0.2, "num_beams": 1}, "needs `num_beams` of 2 or more.*num_beams=1"),
        ({"coverage_penalty": 0.2, "coverage": None}, "needs `coverage`. Received: coverage=None"),
    ],
)
def test_impossible_arguments_are_named(language, search, options, message):
    tables = language.random_tables(0, 1, 2, vocabulary_size=5)
    with pytest.raises(ValueError, match=message):
        search(tables, random_attention(0, 2, 5, sources=(3,)), [2], **options)


def test_without_a_penalty_nothing_is_needed(language, search):
    tables, attention = language.random_tables(7, 4, 5, vocabulary_size=7), random_attention(7, 5, vocabulary_size=7)
    for num_beams in (1, 3):
        options = {"num_beams": num_beams, "coverage_penalty": 0.0}
        with_coverage = search(tables, attention, [5] * 4, **options)
        without = search(tables, attention, [5] * 4, coverage=None, **options)
        for left, right in zip(with_coverage, without, strict=True):
            np.testing.assert_array_equal(left, right)

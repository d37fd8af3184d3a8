"""Drawn sequences: how often each comes, and what each depends on."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding import beam_search
from keras_transformer.decoding.sampling import sample

PAD, UNK, START, END, A, B, C, D = range(8)
ROWS = 20_000
# The model's own; padding and start have half of it and are never drawn. Rules are worked on twice the rest.
PROBABILITIES = {PAD: 0.3, START: 0.2, UNK: 0.02, END: 0.08, A: 0.2, B: 0.12, C: 0.05, D: 0.03}


def distribution(tokens=(UNK, END, A, B, C, D), temperature=1.0):
    weights = {token: PROBABILITIES[token] ** (1 / temperature) for token in tokens}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def draw_first(seeds=None, **options):
    """The first of two tokens, drawn in many rows of the same probabilities."""
    logits = np.log([PROBABILITIES[token] for token in range(8)]).astype("float32") + 3.0
    seeds = np.arange(ROWS) if seeds is None else seeds

    def step(token_ids, index, state):
        return tf.broadcast_to(logits, [len(seeds), 8]), state

    ids, _ = sample(step, (), [2] * len(seeds), 2, seeds=seeds, **options)
    return np.asarray(ids)[:, 0]


def assert_distributed(drawn, expected):
    """Nothing else comes, and chi-square stays below what one of a thousand exceeds."""
    counts = np.bincount(drawn, minlength=8)
    assert set(np.flatnonzero(counts)) == set(expected)
    statistic = sum((counts[token] - len(drawn) * p) ** 2 / (len(drawn) * p) for token, p in expected.items())
    critical = [0.0, 10.83, 13.82, 16.27, 18.47, 20.52][len(expected) - 1]  # 0 to 5 degrees of freedom
    assert statistic <= critical


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_they_are_likely(temperature):
    """p^(1 / temperature), over what may come."""
    assert_distributed(draw_first(temperature=temperature), distribution(temperature=temperature))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "tokens"), [(1, [A]), (3, [A, B, END]), (5, [A, B, END, C, D]), (50, None)])
def test_top_k(top_k, tokens, temperature):
    expected = distribution(tokens or (UNK, END, A, B, C, D), temperature)
    assert_distributed(draw_first(top_k=top_k, temperature=temperature), expected)


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        # A 0.4, B 0.24, END 0.16, C 0.1, D 0.06, UNK 0.04: together 0.4, 0.64, 0.8, 0.9, 0.96, 1
        ({"top_p": 1e-6}, [A]),
        ({"top_p": 0.39}, [A]),
        ({"top_p": 0.41}, [A, B]),
        ({"top_p": 0.63}, [A, B]),
        ({"top_p": 0.7}, [A, B, END]),
        ({"top_p": 0.95}, [A, B, END, C, D]),
        # Squared: 0.16, 0.0576, 0.0256, 0.01, 0.0036, 0.0016 of 0.2584: together 0.62, 0.84, 0.94, 0.98
        ({"top_p": 0.6, "temperature": 0.5}, [A]),
        ({"top_p": 0.9, "temperature": 0.5}, [A, B, END]),
        # Roots: 0.632, 0.490, 0.4, 0.316, 0.245, 0.2 of 2.284: together 0.277, 0.491, 0.666, 0.805, 0.912
        ({"top_p": 0.6, "temperature": 2.0}, [A, B, END]),
        ({"top_p": 0.9, "temperature": 2.0}, [A, B, END, C, D]),
        # Among the likeliest three, 0.5, 0.3, 0.2: together 0.5, 0.8
        ({"top_p": 0.45, "top_k": 3}, [A]),
        ({"top_p": 0.7, "top_k": 3}, [A, B]),
        ({"top_p": 0.9, "top_k": 3}, [A, B, END]),
        ({"top_p": 0.95, "top_k": 2}, [A, B]),
        # Roots among three: 0.415, 0.322, 0.263: together 0.415, 0.737
        ({"top_p": 0.7, "top_k": 3, "temperature": 2.0}, [A, B]),
    ],
)
def test_the_nucleus_by_hand(options, tokens):
    assert_distributed(draw_first(**options), distribution(tokens, options.get("temperature", 1.0)))


def test_positions_and_neighbouring_seeds_are_independent():
    """All pairs of what comes first and second, and of what two seeds give, as often as their product says."""
    logits = np.log([[0.05, 0.05, 0.05, 0.05, 0.5, 0.3]]).astype("float32")

    def step(token_ids, index, state):
        return tf.repeat(logits, ROWS, axis=0), state

    ids, _ = sample(step, (), [3] * ROWS, 3, seeds=np.arange(ROWS), min_lengths=[3] * ROWS)
    first, second = np.asarray(ids)[:, 0], np.asarray(ids)[:, 1]
    allowed = {UNK: 0.05 / 0.85, A: 0.5 / 0.85, B: 0.3 / 0.85}  # too early for the end
    for left, right in ((first, second), (first[::2], first[1::2]), (first[:-7], second[7:])):
        for a, p in allowed.items():
            for b, q in allowed.items():
                share, deviation = np.mean((left == a) & (right == b)), math.sqrt(p * q * (1 - p * q) / len(left))
                assert abs(share - p * q) < 4 * deviation


def test_a_hardly_positive_temperature_is_the_likeliest_token(language):
    tables = language.random_tables(1, 20, 9, vocabulary_size=11)
    tables[..., [PAD, START]] += 10
    expected, _ = beam_search(language.step, language.state(tables), [9] * 20, 9, num_beams=1)
    for options in ({}, {"top_k": 4}, {"top_p": 0.9}):
        for temperature in (1e-4, 1e-12, 1e-30):
            ids, _ = sample(language.step, language.state(tables), [9] * 20, 9, temperature, **options)
            np.testing.assert_array_equal(ids, expected[:, 0], err_msg=f"{temperature} {options}")


@pytest.fixture
def draw(language):
    def draw(tables, max_lengths, seeds, **options):
        return sample(language.step, language.state(tables), max_lengths, tables.shape[1], seeds=seeds, **options)

    return draw


OPTIONS = [{}, {"temperature": 0.7, "top_k": 4}, {"top_p": 0.8}, {"top_k": 5, "top_p": 0.9, "no_repeat_ngram_size": 2}]
MAX_LENGTHS = np.int32([9, 4, 1, 9, 9, 7])
SEEDS = np.int32([5, 5, 6, -7, 2**31 - 1, 0])


@pytest.mark.parametrize("options", OPTIONS)
def test_a_row_gets_alone_what_it_gets_in_a_batch(language, draw, options):
    tables = language.random_tables(2, 6, 9, vocabulary_size=9)
    ids, scores = (np.asarray(x) for x in draw(tables, MAX_LENGTHS, SEEDS, **options))
    order = [3, 0, 5, 1, 4, 2]
    shuffled, shuffled_scores = draw(tables[order], MAX_LENGTHS[order], SEEDS[order], **options)
    np.testing.assert_array_equal(shuffled, ids[order])
    np.testing.assert_allclose(shuffled_scores, scores[order], atol=1e-5)
    for row, longest in enumerate(MAX_LENGTHS):
        one = slice(row, row + 1)
        alone, alone_scores = draw(tables[one, :longest], MAX_LENGTHS[one], int(SEEDS[row]), **options)
        np.testing.assert_array_equal(alone[0], ids[row, :longest])
        np.testing.assert_allclose(alone_scores[0], scores[row], atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_graph_draws_what_is_drawn_eagerly(language, draw, options, jit_compile):
    tables = language.random_tables(3, 6, 9, vocabulary_size=9)
    compiled = tf.function(lambda *inputs: draw(*inputs, **options), jit_compile=jit_compile, autograph=False)
    ids, scores = compiled(tf.constant(tables), tf.constant(MAX_LENGTHS), tf.constant(SEEDS))
    expected, expected_scores = draw(tables, MAX_LENGTHS, SEEDS, **options)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)


def test_another_seed_draws_another_sequence_and_the_same_one_the_same(language, draw):
    tables = np.repeat(language.random_tables(4, 1, 12, vocabulary_size=30, scale=0.5), 200, axis=0)
    tables[..., END] -= 5
    ids, _ = draw(tables, [12] * 200, np.arange(200))
    assert len({language.sequence(row) for row in ids}) > 195
    same, _ = draw(tables, [12] * 200, 17)
    assert {language.sequence(row) for row in same} == {language.sequence(ids[17])}


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_scores_are_the_models_log_p_over_the_penalty(language, draw, alpha, temperature):
    """Whatever the temperature; and neither padding nor start is drawn, however likely."""
    tables = language.random_tables(5, 50, 12, vocabulary_size=9)
    tables[..., [PAD, START]] += 10
    tables[..., END] -= 1
    ids, scores = draw(tables, [12] * 50, np.arange(50), length_penalty=alpha, temperature=temperature)
    sequences = [language.sequence(row) for row in ids]
    assert not {PAD, START} & {token for sequence in sequences for token in sequence}
    expected = [language.score(table, sequence, alpha) for table, sequence in zip(tables, sequences, strict=True)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert len({len(sequence) for sequence in sequences}) > 3


def test_what_is_drawn_obeys_the_limits(language, draw):
    rows = 60
    tables = language.random_tables(6, rows, 10, vocabulary_size=30, scale=1.0)
    tables[..., [END, A]] += 3
    prefixes = np.int32([[A, A, A], [B, C, PAD], [PAD, PAD, PAD]] * 20)
    limits = {"min_lengths": [6] * rows, "prefix_ids": prefixes, "no_repeat_ngram_size": 2}
    ids, scores = draw(tables, [10] * rows, np.arange(rows), temperature=0.8, top_k=10, top_p=0.95, **limits)
    for table, prefix, row, score in zip(tables, prefixes, ids, np.asarray(scores), strict=True):
        sequence = language.sequence(row)
        assert len(sequence) >= 6
        prefix = prefix[prefix != PAD].tolist()
        assert list(sequence[: len(prefix)]) == prefix
        pairs = list(itertools.pairwise(sequence))
        assert all(pair not in pairs[:place] for place, pair in enumerate(pairs) if place + 1 >= len(prefix))
        np.testing.assert_allclose(score, language.score(table, sequence, 0.6), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *[({"temperature": x}, rf"`temperature` must be .*temperature={x}") for x in (0, -1.0, math.inf, math.nan)],
        *[({"top_k": x}, rf"`top_k` must be a positive integer. Received: top_k={x}") for x in (0, -2, 1.5, True)],
        *[({"top_p": x}, rf"`top_p` must be above 0 and at most 1. Received: top_p={x}") for x in (0, 1.1, math.nan)],
        ({"length_penalty": -0.1}, "`length_penalty` must be 0 or more"),
        ({"no_repeat_ngram_size": -1}, "`no_repeat_ngram_size` must be an integer"),
    ],
)
def test_impossible_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        draw_first(seeds=np.arange(2), **options)

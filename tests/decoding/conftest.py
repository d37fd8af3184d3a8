"""A language without a model, small enough to write down every sentence of it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from keras import ops

PAD, UNK, START, END = range(4)
FIRST_LETTER = 4


@pytest.fixture
def language():
    return SimpleNamespace(
        random_tables=random_tables,
        markov_chain=markov_chain,
        state=state,
        step=step,
        exhaustive=exhaustive,
        textbook_beam=textbook_beam,
        score=score,
        log_probability=log_probability,
        sequence=sequence,
    )


def random_tables(seed, rows, max_length, vocabulary_size, scale=2.0):
    """Logits `(B, L, V, V, V)`: by row, position, the token before the last and the last one."""
    shape = (rows, max_length, vocabulary_size, vocabulary_size, vocabulary_size)
    return np.random.default_rng(seed).normal(0, scale, shape).astype("float32")


def markov_chain(letters, probabilities, max_length):
    """Tables of one row from `{"": {"c": 0.5, ...}, "c": {...}}`; "." is the end, and "" the start."""
    ids = {"": START, ".": END, **{letter: FIRST_LETTER + index for index, letter in enumerate(letters)}}
    matrix = np.full((FIRST_LETTER + len(letters),) * 2, -100.0, "float32")
    for last, nexts in probabilities.items():
        assert math.isclose(sum(nexts.values()), 1)
        for token, probability in nexts.items():
            matrix[ids[last], ids[token]] = math.log(probability)
    return np.broadcast_to(matrix, (1, max_length, len(matrix), *matrix.shape))


def state(tables):
    """Before a sentence; the tokens so far travel in the state, so that a state of another hypothesis shows."""
    return {"tables": tables, "so far": {"token before": ops.full((ops.shape(tables)[0],), START, dtype="int32")}}


def step(token_ids, index, state):
    now = ops.take(state["tables"], index, axis=1)  # (R, L, V, V, V) -> (R, V, V, V)
    before, last = (
        ops.one_hot(ids, now.shape[-1], dtype="float32") for ids in (state["so far"]["token before"], token_ids)
    )
    return ops.einsum("rabv,ra,rb->rv", now, before, last), {**state, "so far": {"token before": token_ids}}


def log_probabilities(table, prefix):
    before, last = ([START, START, *prefix])[-2:]
    logits = table[len(prefix), before, last].astype("float64")
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def log_probability(table, sequence):
    """log p of a sequence, its end token included, in float64."""
    return sum(log_probabilities(table, sequence[:position])[token] for position, token in enumerate(sequence))


def score(table, sequence, alpha):
    return log_probability(table, sequence) / ((5 + len(sequence)) / 6) ** alpha


def exhaustive(table, max_length, alpha):
    """All sequences of at most `max_length` tokens with their scores, best first."""
    letters = [token for token in range(table.shape[-1]) if token not in (PAD, START, END)]
    prefixes, found = [()], []
    for _ in range(max_length):
        found += [(*prefix, END) for prefix in prefixes]
        prefixes = [(*prefix, letter) for prefix in prefixes for letter in letters]
    return sorted(((sequence, score(table, sequence, alpha)) for sequence in found), key=lambda pair: -pair[1])


def textbook_beam(table, max_length, alpha, num_beams):
    """The ended hypotheses of a beam search that never stops early, best first: `num_beams` always go on."""
    live, ended = [((), 0.0)], []
    for length in range(1, max_length + 1):
        allowed = [END] if length == max_length else set(range(table.shape[-1])) - {PAD, START}
        candidates = [
            ((*prefix, token), log_p + log_probabilities(table, prefix)[token])
            for prefix, log_p in live
            for token in allowed
        ]
        candidates.sort(key=lambda pair: -pair[1])
        ended += [pair for pair in candidates[:num_beams] if pair[0][-1] == END]
        live = [pair for pair in candidates if pair[0][-1] != END][:num_beams]
    scored = [(sequence, log_p / ((5 + len(sequence)) / 6) ** alpha) for sequence, log_p in ended]
    return sorted(scored, key=lambda pair: -pair[1])


def sequence(ids):
    """One row of ids as a tuple up to its end token; after it there may be padding alone."""
    ids = [int(token) for token in ops.convert_to_numpy(ids)]
    length = ids.index(END) + 1
    assert set(ids[length:]) <= {PAD}
    return tuple(ids[:length])

"""Decoding step by step with the cache gives the full pass's logits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

# What rounding alone may move a logit of size 3 to 5 in two orders of summation.
TOLERANCES = {"float32": 1e-5, "float64": 1e-5, "mixed_float16": 0.02, "mixed_bfloat16": 0.15}


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def steps(model, batch, max_length, step=None):
    """The logits of every step, (B, T, V), the decoder fed with the batch's own tokens."""
    step = step or model.step
    state = model.init_state(*model.encode(batch["encoder_token_ids"]), max_length)
    logits = []
    for index in range(batch["decoder_token_ids"].shape[1]):
        step_logits, state = step(batch["decoder_token_ids"][:, index], index, state)
        logits.append(numpy(step_logits))
    return np.stack(logits, 1)


@pytest.mark.parametrize("policy", TOLERANCES)
@pytest.mark.parametrize("normalize_first", [False, True])
def test_steps_are_the_full_pass(make_model, make_batch, policy, normalize_first):
    model = make_model(dtype=policy, num_decoder_layers=3, normalize_first=normalize_first)
    batch = make_batch((7, 4, 2, 1), (6, 6, 6, 6))
    logits = steps(model, batch, max_length=9)
    assert logits.dtype == ("float64" if policy == "float64" else "float32")
    assert np.abs(logits - numpy(model(batch))).max() < TOLERANCES[policy]


def test_finished_rows_are_padded(make_model, make_batch):
    """A search goes on with padding in the rows that are done: the others' logits do not see it."""
    model = make_model()
    batch = make_batch((7, 4, 2), (6, 3, 4))
    difference = np.abs(steps(model, batch, max_length=6) - numpy(model(batch)))
    assert difference[batch["decoder_token_ids"] != 0].max() < 1e-5


def test_other_sizes(make_model, make_batch):
    model = make_model(key_dim=3, value_dim=5, share_embeddings=False, target_vocabulary_size=31)
    batch = make_batch((7, 4, 2), (5, 5, 5))
    assert np.abs(steps(model, batch, max_length=5) - numpy(model(batch))).max() < 1e-5


def test_in_a_graph_past_the_length_of_training(make_model):
    """One trace serves every index, also past what the model ever saw."""
    model = make_model()
    traces = []

    @tf.function
    def step(token_ids, index, state):
        traces.append(1)
        return model.step(token_ids, index, state)

    rng = np.random.default_rng(7)
    batch = {
        "encoder_token_ids": np.array([[5, 6, 7, 0], [8, 9, 0, 0]], "int32"),
        "decoder_token_ids": rng.integers(4, 29, (2, 150), "int32"),
    }
    logits = steps(model, batch, 150, lambda ids, index, state: step(tf.constant(ids), tf.constant(index), state))
    assert len(traces) == 1
    # Positions known in the graph alone are exact to 1e-7 and not to the last bit: 1e-5 here is their sum.
    assert np.abs(logits - numpy(model(batch))).max() < 2e-5


def test_state_is_tensors_led_by_the_batch(make_model, make_batch):
    """Beam search repeats and reorders it by taking rows of every tensor."""
    model = make_model(num_decoder_layers=3)
    batch = make_batch((7, 4, 2), (3, 3, 3))
    state = model.init_state(*model.encode(batch["encoder_token_ids"]), 8)
    tensors = keras.tree.flatten(state)
    assert all(tensor.shape[0] == 3 for tensor in tensors)
    _, after = model.step(batch["decoder_token_ids"][:, 0], 0, state)
    assert keras.tree.map_structure(lambda x: (tuple(x.shape), x.dtype), after) == keras.tree.map_structure(
        lambda x: (tuple(x.shape), x.dtype), state
    )

    order = np.array([2, 0, 0])
    reordered = keras.tree.map_structure(lambda x: keras.ops.take(x, order, axis=0), after)
    tokens = batch["decoder_token_ids"][:, 1]
    plain, _ = model.step(tokens, 1, after)
    taken, _ = model.step(tokens[order], 1, reordered)
    np.testing.assert_allclose(numpy(taken), numpy(plain)[order], atol=1e-6)


def test_the_states_given_are_not_changed(make_model, make_batch):
    model = make_model()
    batch = make_batch((7, 4, 2), (3, 3, 3))
    state = model.init_state(*model.encode(batch["encoder_token_ids"]), 4)
    copies = [numpy(tensor).copy() for tensor in keras.tree.flatten(state)]
    model.step(batch["decoder_token_ids"][:, 0], 0, state)
    for tensor, copy in zip(keras.tree.flatten(state), copies, strict=True):
        np.testing.assert_array_equal(numpy(tensor), copy)

"""A model learns to reverse strings of digits in about a minute: attention, masks, loss, schedule and cache together.

The seed is not fixed: what is shown is that it learns, not that one run did.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt

PAD, START, END, FIRST_DIGIT = 0, 2, 3, 4
VOCABULARY, LONGEST = 14, 7


def pairs(count, rng):
    """Strings of 3 to 7 digits, each followed by the end token, and their reverses, (count, 8)."""
    source, target = (np.zeros((count, LONGEST + 1), "int32") for _ in range(2))
    for row, length in enumerate(rng.integers(3, LONGEST + 1, count)):
        digits = rng.integers(FIRST_DIGIT, VOCABULARY, length)
        source[row, : length + 1] = [*digits, END]
        target[row, : length + 1] = [*digits[::-1], END]
    return source, target


def training_data(source, target):
    """Teacher forcing: the decoder reads the target one place to the right, led by the start token."""
    decoder = np.concatenate([np.full((len(target), 1), START, "int32"), target[:, :-1]], axis=1)
    decoder = np.where(decoder == END, PAD, decoder)
    inputs = {"encoder_token_ids": source, "decoder_token_ids": decoder}
    return inputs, target, np.float32(target != PAD)


def greedy(model, source):
    """The likeliest token at every step, until each row has ended."""
    step = tf.function(model.step)
    state = model.init_state(*model.encode(source), LONGEST + 1)
    token_ids, written = np.full(len(source), START, "int32"), []
    for index in range(LONGEST + 1):
        logits, state = step(tf.constant(token_ids), tf.constant(index), state)
        token_ids = keras.ops.convert_to_numpy(logits).argmax(-1).astype("int32")
        ended = np.any([ids == END for ids in written], axis=0) if written else np.zeros(len(source), bool)
        written.append(np.where(ended, PAD, token_ids))
    return np.stack(written, axis=1)


@pytest.mark.slow
def test_digits_are_reversed():
    """Two hundred updates are most often enough; a thousand must be."""
    rng = np.random.default_rng()
    unseen_source, unseen_target = pairs(1000, rng)
    unseen = {row.tobytes() for row in unseen_source}

    model = kt.Transformer(
        VOCABULARY, num_encoder_layers=2, num_decoder_layers=2, d_model=64, num_heads=4, d_ff=128, dropout=0.0
    )
    model.compile(
        kt.transformer_optimizer(64, warmup_steps=100, scale=0.2),
        loss=kt.SmoothedCrossentropy(0.1),
        weighted_metrics=[kt.TokenAccuracy()],
        jit_compile=True,
    )
    token_accuracy, updates = 0.0, 0
    while token_accuracy < 0.998 and updates < 1000:
        source, target = pairs(10_000, rng)
        inputs, labels, weights = training_data(source, target)
        weights[[row.tobytes() in unseen for row in source]] = 0
        model.fit(inputs, labels, sample_weight=weights, batch_size=100, verbose=2)
        updates += 100

        inputs, labels, weights = training_data(unseen_source, unseen_target)
        logs = model.evaluate(inputs, labels, sample_weight=weights, batch_size=100, return_dict=True, verbose=0)
        token_accuracy = logs["token_accuracy"]

    exact_match = (greedy(model, unseen_source) == unseen_target).all(axis=1).mean()
    print(f"unseen strings, {updates} updates: token accuracy {token_accuracy:.4f}, exact match {exact_match:.3f}")
    assert token_accuracy >= 0.99
    assert exact_match >= 0.95

"""SmoothedCrossentropy against the one-hot that it does not make."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt

BATCH, LENGTH, VOCABULARY = 3, 5, 7


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def smoothed_targets(labels, label_smoothing, vocabulary=VOCABULARY):
    """(1 - eps) on the label and eps / V on all V entries, the label's own included."""
    return (1 - label_smoothing) * np.eye(vocabulary)[labels] + label_smoothing / vocabulary


def log_softmax(logits):
    logits = np.float64(logits)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.fixture
def labels_and_logits():
    rng = np.random.default_rng(1)
    return rng.integers(0, VOCABULARY, (BATCH, LENGTH)), np.float32(rng.normal(0, 3, (BATCH, LENGTH, VOCABULARY)))


def test_by_hand():
    """Two tokens, p = (3/4, 1/4), eps 0.2: targets (0.9, 0.1)."""
    loss = kt.SmoothedCrossentropy(0.2).call(np.array([[0]]), np.log(np.float32([[[3, 1]]])))
    np.testing.assert_allclose(numpy(loss), [[-0.9 * np.log(0.75) - 0.1 * np.log(0.25)]], rtol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
def test_values_are_those_of_smoothed_targets(labels_and_logits, label_smoothing):
    labels, logits = labels_and_logits
    values = kt.SmoothedCrossentropy(label_smoothing).call(labels, logits)
    assert values.shape == (BATCH, LENGTH)
    expected = -(smoothed_targets(labels, label_smoothing) * log_softmax(logits)).sum(-1)
    np.testing.assert_allclose(numpy(values), expected, rtol=1e-5)
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=label_smoothing, reduction=None)
    np.testing.assert_allclose(numpy(values), numpy(theirs(np.eye(VOCABULARY)[labels], logits)), rtol=1e-5)


def test_without_smoothing_it_is_the_sparse_crossentropy(labels_and_logits):
    labels, logits = labels_and_logits
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)(labels, logits)
    np.testing.assert_allclose(numpy(kt.SmoothedCrossentropy(0.0).call(labels, logits)), numpy(theirs), rtol=1e-5)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_gradients_are_softmax_minus_targets(labels_and_logits, label_smoothing):
    labels, logits = labels_and_logits
    weights = np.float32(np.random.default_rng(2).integers(0, 2, (BATCH, LENGTH)))
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = kt.SmoothedCrossentropy(label_smoothing)(labels, logits, sample_weight=weights)
    expected = np.exp(log_softmax(logits)) - smoothed_targets(labels, label_smoothing)
    expected *= weights[..., None] / weights.sum()
    np.testing.assert_allclose(numpy(tape.gradient(loss, logits)), expected, atol=1e-6)


def test_the_default_is_the_papers_tenth(labels_and_logits):
    assert kt.SmoothedCrossentropy().label_smoothing == 0.1


def test_the_mean_is_over_the_weights(labels_and_logits):
    labels, logits = labels_and_logits
    weights = np.float32(np.arange(LENGTH) < [[5], [2], [0]])
    values = -(smoothed_targets(labels, 0.1) * log_softmax(logits)).sum(-1)
    loss = kt.SmoothedCrossentropy()(labels, logits, sample_weight=weights)
    np.testing.assert_allclose(numpy(loss), values[weights > 0].sum() / 7, rtol=1e-5)
    np.testing.assert_allclose(numpy(kt.SmoothedCrossentropy()(labels, logits)), values.mean(), rtol=1e-5)


def test_no_real_token_is_no_loss_and_no_gradient(labels_and_logits):
    labels, logits = labels_and_logits
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = kt.SmoothedCrossentropy()(labels, logits, sample_weight=np.zeros((BATCH, LENGTH)))
    assert numpy(loss) == 0
    assert (numpy(tape.gradient(loss, logits)) == 0).all()


def test_no_one_hot_is_made():
    """Neither forward nor backward: no such op, and no integers or booleans of the logits' size, to compare or pick."""

    def loss_and_gradient(labels, logits):
        loss = kt.SmoothedCrossentropy()(labels, logits)
        return loss, tf.gradients(loss, logits)

    shape = (BATCH, LENGTH, VOCABULARY)
    traced = tf.function(loss_and_gradient).get_concrete_function(
        tf.TensorSpec(shape[:2], "int32"), tf.TensorSpec(shape, "float32")
    )
    operations = traced.graph.get_operations()
    assert any(output.shape == shape for op in operations for output in op.outputs)
    assert not [op.name for op in operations if "OneHot" in op.type]
    assert not [
        op.name
        for op in operations
        for output in op.outputs
        if not output.dtype.is_floating and output.shape.num_elements() == np.prod(shape)
    ]


@pytest.mark.parametrize("size", [1e4, 1e30])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_huge_logits_are_finite(size, label_smoothing):
    logits = tf.constant([[[size, -size, 0.0, 0.0]] * 2], "float32")
    labels = np.array([[0, 1]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = kt.SmoothedCrossentropy(label_smoothing).call(labels, logits)
    # log p = (0, -2 size, -size, -size), whose mean is -size.
    expected = np.array([[0, 2 * size]]) * (1 - label_smoothing) + label_smoothing * size
    np.testing.assert_allclose(numpy(values), expected, rtol=1e-5)
    gradient = numpy(tape.gradient(values, logits))
    probabilities = np.array([1.0, 0, 0, 0])
    np.testing.assert_allclose(gradient, probabilities - smoothed_targets(labels, label_smoothing, 4), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_reduced_in_float32(dtype):
    rng = np.random.default_rng(3)
    vocabulary = 5000  # a sum of so many float16 numbers would lose their digits
    labels, logits = rng.integers(0, vocabulary, (2, 3)), tf.cast(rng.normal(0, 3, (2, 3, vocabulary)), dtype)
    values = kt.SmoothedCrossentropy().call(labels, logits)
    assert values.dtype == "float32"
    exact = log_softmax(numpy(tf.cast(logits, "float64")))
    expected = -(smoothed_targets(labels, 0.1, vocabulary) * exact).sum(-1)
    np.testing.assert_allclose(numpy(values), expected, rtol=1e-5)


def test_float64_stays_float64(labels_and_logits):
    labels, logits = labels_and_logits
    values = kt.SmoothedCrossentropy().call(labels, np.float64(logits))
    assert values.dtype == "float64"
    expected = -(smoothed_targets(labels, 0.1) * log_softmax(logits)).sum(-1)
    np.testing.assert_allclose(numpy(values), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16", "float32"])
def test_labels_of_any_number_type(labels_and_logits, dtype):
    labels, logits = labels_and_logits
    expected = numpy(kt.SmoothedCrossentropy()(labels, logits))
    np.testing.assert_array_equal(numpy(kt.SmoothedCrossentropy()(labels.astype(dtype), logits)), expected)


@pytest.mark.parametrize("label_smoothing", [1.0, -0.1, 2])
def test_impossible_smoothing_is_named(label_smoothing):
    with pytest.raises(ValueError, match=f"label_smoothing={label_smoothing}"):
        kt.SmoothedCrossentropy(label_smoothing)


def test_round_trip(labels_and_logits):
    loss = kt.SmoothedCrossentropy(0.3, name="mine")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(again, kt.SmoothedCrossentropy)
    assert again.get_config() == loss.get_config()
    assert numpy(again(*labels_and_logits)) == numpy(loss(*labels_and_logits))

"""DistributedModel: somebody's own model, and one batch on two replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy

import keras_transformer as kt


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[5, 5, 5, 5, 2, 1], [5, 4, 3, 0, 0, 0]])
def test_two_replicas_make_one_devices_step(make_model, tmp_path, lengths):
    """Uneven token counts per replica, once with a replica that holds nothing but filler. Without XLA."""
    rng = np.random.default_rng(4)
    real = np.arange(5) < np.array(lengths)[:, None]
    inputs = {
        "encoder_token_ids": rng.integers(4, 29, (6, 7)).astype("int32"),
        "decoder_token_ids": rng.integers(4, 29, (6, 5)).astype("int32") * real,
    }
    dataset = tf.data.Dataset.from_tensors((inputs, rng.integers(4, 29, (6, 5)) * real, np.float32(real)))
    one = make_model(num_encoder_layers=1, num_decoder_layers=1)
    one.compile(
        keras.optimizers.SGD(0.5),
        loss=kt.SmoothedCrossentropy(),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=False,
    )
    one.save(tmp_path / "model.keras")
    before = one.get_weights()
    with strategy(2).scope():
        two = keras.saving.load_model(tmp_path / "model.keras")

    logs = []
    for model in (one, two):
        trained = model.fit(dataset, epochs=1, verbose=0, shuffle=False).history
        evaluated = model.evaluate(dataset, return_dict=True, verbose=0)
        logs.append({**{name: values[0] for name, values in trained.items()}, "after": evaluated["loss"]})
    assert logs[1] == pytest.approx(logs[0], rel=1e-4)
    for ours, theirs in zip(two.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(one.get_weights()[0] - before[0]).max() > 1e-3, "the step moved the weights"


class Line(kt.DistributedModel):
    """y = x w for one number x."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")

    def call(self, x):
        return self.dense(x)


def weight_after_a_step(loss, *arguments):
    model = Line()
    model.compile(keras.optimizers.SGD(1.0), loss=loss, jit_compile=False)
    loss_value = model.train_on_batch(*(np.float32(argument) for argument in arguments))
    return float(model.dense.kernel[0, 0]), float(loss_value)


@pytest.mark.parametrize("loss", ["mse", "mean_squared_error", keras.losses.MeanSquaredError()])
def test_anybodys_own_loss(loss):
    """x = (1, 2), y = 0, w = 1: loss (1 + 4) / 2, gradient (2 + 8) / 2."""
    assert weight_after_a_step(loss, [[1], [2]], [[0], [0]]) == pytest.approx((1 - 5, 2.5))
    assert weight_after_a_step(loss, [[1], [2]], [0, 0]) == pytest.approx((1 - 5, 2.5))


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "mean_with_sample_weight", None])
def test_the_reduction_of_the_loss_does_not_matter(reduction):
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    assert weight_after_a_step(loss, [[1], [2]], [[0], [0]]) == pytest.approx((1 - 5, 2.5))


def test_the_mean_is_over_the_weights():
    """Weights 3 and 1: loss (3 * 1 + 4) / 4, gradient (3 * 2 + 8) / 4."""
    after = weight_after_a_step("mse", [[1], [2]], [[0], [0]], [3, 1])
    assert after == pytest.approx((1 - 3.5, 7 / 4))


def test_a_weight_per_row_counts_for_each_of_its_elements():
    """(B, 1) beside losses of (B, T) weighs every element of the row: it is not T times the mean."""
    x, y = [[[1], [2]], [[3], [3]]], np.zeros((2, 2, 1))
    loss = keras.losses.MeanSquaredError()
    assert weight_after_a_step(loss, x, y, [[1], [0]]) == pytest.approx((1 - 5, 2.5))


def test_a_rank_1_weight_is_a_rows():
    """As Keras takes it, and as `class_weight` gives it: only the first row, of ones, counts."""
    x = [[[1], [1], [1]], [[5], [5], [5]]]
    assert weight_after_a_step("mse", x, np.zeros((2, 3, 1)), [1, 0]) == pytest.approx((1 - 2, 1.0))


def test_weights_of_more_axes_are_refused():
    with pytest.raises(ValueError, match="must not have more axes than the losses"):
        weight_after_a_step("mse", [[1], [2]], [[0], [0]], [[[1]], [[0]]])


def test_a_function_gets_labels_of_the_predictions_rank():
    """(B,) beside (B, 1) would broadcast to (B, B), and the mean be another: (1 + 4) / 2 for y = 0, 0 for y = x."""
    squares = lambda y, y_pred: keras.ops.mean((y - y_pred) ** 2, axis=-1)  # noqa: E731
    assert weight_after_a_step(squares, [[1], [2]], [0, 0]) == pytest.approx((1 - 5, 2.5))
    assert weight_after_a_step(squares, [[1], [2]], [1, 2]) == pytest.approx((1, 0.0))


def test_losses_are_computed_in_float32_under_float16():
    """(300 - 0)^2 is no float16."""
    model = Line(dtype="mixed_float16")
    model.compile(keras.optimizers.SGD(0.0), loss="mse", jit_compile=False)
    assert model.train_on_batch(np.float32([[300]]), np.float32([[0]])) == pytest.approx(90_000)


def test_an_implicit_mask_hides_elements_from_the_loss():
    class Masked(Line):
        def call(self, x):
            return super().call(keras.layers.Masking(0.0)(x))

    model = Masked()
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=False)
    # w * 0 is no error at a label of 0, but counts as an element: 1 / 2 without the mask, 1 / 1 with it.
    assert model.train_on_batch(np.float32([[[1], [0]]]), np.zeros((1, 2, 1), "float32")) == pytest.approx(1.0)

    # A weight a row beside the mask, with B = T = 2: only row 0 counts, and of it only position 1, whose loss is 9.
    model = Masked()
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=False)
    x = np.float32([[[0], [3]], [[5], [7]]])
    assert model.train_on_batch(x, np.zeros((2, 2, 1), "float32"), np.float32([1, 0])) == pytest.approx(9.0)


@pytest.mark.parametrize("arguments", [{"loss": ["mse"]}, {}, {"loss": "mse", "loss_weights": 2.0}])
def test_what_the_loss_is_not_made_for_is_refused(arguments):
    with pytest.raises(ValueError, match="one loss for one output, and no `loss_weights`"):
        Line().compile("sgd", **arguments)


def test_labels_are_needed():
    model = Line()
    model.compile("sgd", loss="mse", jit_compile=False)
    with pytest.raises(ValueError, match="needs labels"):
        model.fit(np.ones((2, 1)), verbose=0)


def test_inputs_and_outputs_are_refused_and_harm_no_other_model(make_model):
    """Keras would make every model that is derived from the class a functional one."""
    inputs = keras.Input((1,))
    with pytest.raises(TypeError, match="write `call`"):
        kt.DistributedModel(inputs, keras.layers.Dense(1)(inputs))
    assert make_model().count_params() > 0


def test_a_model_without_trainable_weights_is_warned_of():
    model = Line()
    model.trainable = False
    model.compile("sgd", loss="mse", run_eagerly=True)
    with pytest.warns(UserWarning, match="does not have any trainable weights"):
        model.train_on_batch(np.ones((2, 1)), np.zeros((2, 1)))


def test_logits_are_not_taken_for_probabilities(make_model):
    with pytest.raises(ValueError, match="gives logits"):
        make_model().compile("adam", loss="sparse_categorical_crossentropy")


def test_added_losses_count_once():
    class WithPenalty(Line):
        def call(self, x):
            y = super().call(x)
            self.add_loss(3.0 * keras.ops.sum(self.dense.kernel))
            return y

    model = WithPenalty()
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=False)
    model.train_on_batch(np.float32([[1], [2]]), np.float32([[0], [0]]))
    assert float(model.dense.kernel[0, 0]) == pytest.approx(1 - 5 - 3)


class ShapesOfLine(Line):
    """Notes the shapes that it is traced with."""

    def __init__(self):
        super().__init__()
        self.traced_with = []

    def call(self, x):
        self.traced_with.append(tuple(x.shape))
        return super().call(x)


def batches_of_sizes(sizes, **kwargs):
    dataset = tf.data.Dataset.from_generator(lambda: ((np.ones((n, 1)), np.ones((n, 1))) for n in sizes), **kwargs)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(sizes)))


def test_a_step_is_traced_once_for_all_shapes_of_the_data():
    model = ShapesOfLine()
    model.compile("sgd", loss="mse", jit_compile=False)
    model(np.ones((1, 1)))
    model.traced_with.clear()
    model.fit(batches_of_sizes([4, 3, 2], output_signature=(tf.TensorSpec((None, 1)),) * 2), epochs=2, verbose=0)
    assert model.traced_with == [(None, 1)]


def test_data_that_tells_no_shapes_is_trained():
    model = Line()
    model.compile(keras.optimizers.SGD(0.25), loss="mse", jit_compile=False)
    history = model.fit(batches_of_sizes([4, 3], output_types=(tf.float32,) * 2), verbose=0).history
    assert history["loss"] == [0.0], "the weight is 1, and so are x and y"

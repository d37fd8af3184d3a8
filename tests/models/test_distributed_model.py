"""DistributedModel: somebody's own model, and one batch on two replicas."""

import json

import keras
import numpy as np
import pytest

import keras_transformer as kt

ON_TWO_REPLICAS = """
import json
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import keras
import keras_transformer as kt

folder = sys.argv[1]
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
for name in sys.argv[2:]:
    with strategy.scope():
        model = keras.saving.load_model(folder + "/model.keras")
    arrays = dict(np.load(f"{folder}/{name}.npz"))
    labels, weights = arrays.pop("labels"), arrays.pop("weights")
    dataset = tf.data.Dataset.from_tensor_slices((arrays, labels, weights)).batch(len(labels))
    history = model.fit(dataset, epochs=1, verbose=0, shuffle=False).history
    evaluated = model.evaluate(dataset, return_dict=True, verbose=0)
    np.savez(f"{folder}/{name}.out.npz", *model.get_weights())
    print(json.dumps({"fit": {key: value[0] for key, value in history.items()}, "evaluate": evaluated}))
"""


@pytest.mark.slow
def test_two_replicas_make_one_devices_step(make_model, run_python, tmp_path):
    """Uneven token counts per replica, and a replica that holds nothing but filler. Without XLA."""
    rng = np.random.default_rng(4)
    model = make_model()
    model.compile(
        keras.optimizers.SGD(0.5),
        loss=kt.SmoothedCrossentropy(),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=False,
    )
    model.save(tmp_path / "model.keras")
    before = model.get_weights()
    batches = {}
    for name, lengths in {"uneven": [5, 5, 5, 5, 2, 1], "empty": [5, 4, 3, 0, 0, 0]}.items():
        real = np.arange(5) < np.array(lengths)[:, None]
        batches[name] = {
            "encoder_token_ids": rng.integers(4, 29, (6, 7)).astype("int32"),
            "decoder_token_ids": rng.integers(4, 29, (6, 5)).astype("int32") * real,
            "labels": rng.integers(4, 29, (6, 5)) * real,
            "weights": np.float32(real),
        }
        np.savez(tmp_path / f"{name}.npz", **batches[name])
    printed = run_python(ON_TWO_REPLICAS, tmp_path, *batches)

    for (name, batch), line in zip(batches.items(), printed.splitlines(), strict=True):
        model.set_weights(before)
        model.reset_metrics()
        inputs, labels, weights = batch, batch.pop("labels"), batch.pop("weights")
        logs = {"fit": model.train_on_batch(inputs, labels, weights, return_dict=True)}
        logs["evaluate"] = model.evaluate(
            inputs, labels, sample_weight=weights, batch_size=6, return_dict=True, verbose=0
        )
        for kind, two in json.loads(line).items():
            assert two == pytest.approx(logs[kind], rel=1e-4), (name, kind)
        with np.load(tmp_path / f"{name}.out.npz") as out:
            assert len(out) == len(before)
            for one, both in zip(model.get_weights(), out.values(), strict=True):
                np.testing.assert_allclose(both, one, atol=1e-5)
        assert np.abs(model.get_weights()[0] - before[0]).max() > 1e-3, "the step moved the weights"


class Line(kt.DistributedModel):
    """y = x w for one number x."""

    def __init__(self):
        super().__init__()
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


def test_weights_of_another_rank_are_refused():
    with pytest.raises(ValueError, match="sample_weight"):
        weight_after_a_step("mse", np.ones((2, 3, 1)), np.zeros((2, 3, 1)), [1, 0])


def test_several_losses_are_refused():
    with pytest.raises(ValueError, match="one loss"):
        weight_after_a_step(["mse"], [[1], [2]], [[0], [0]])


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

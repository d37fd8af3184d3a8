"""An update is what Keras' own optimizer makes of one device's gradients, whatever its arguments, on any replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from taggers import fit, rows, tagger

BATCHES = 5


class Halved(keras.optimizers.Adam):
    """Somebody's own, with Adam's state and an update of its own."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate / 2)


OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.5, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
    "betas": lambda: keras.optimizers.Adam(0.05, beta_1=0.7, beta_2=0.5, epsilon=1e-3),
    "amsgrad": lambda: keras.optimizers.Adam(0.05, beta_2=0.5, amsgrad=True),
    "subclass": lambda: Halved(0.05, epsilon=1e-3),
    "weight_decay": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.5, epsilon=1e-3),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(1.0, BATCHES)),
    "clipvalue": lambda: keras.optimizers.SGD(0.5, clipvalue=0.01),
    "clipnorm": lambda: keras.optimizers.SGD(0.5, clipnorm=0.1),
    "ema": lambda: keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.7),
    "ema_overwrite": lambda: keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2),
}


def constrained(*args, **options):
    """A tagger with a regularizer, and a constraint that holds its weights."""
    model = tagger(*args, **options)
    model.hidden.kernel.regularizer = keras.regularizers.L2(0.05)
    model.out.kernel.constraint = keras.constraints.MaxNorm(0.9)
    return model


def by_keras(model, optimizer, data):
    """Trains by `keras.Optimizer.apply`, and gives the sum of all losses."""
    x, y, weights = data
    loss_sum = 0.0
    for start in range(0, len(x), 8):
        part = slice(start, start + 8)
        with tf.GradientTape() as tape:
            losses = keras.ops.sparse_categorical_crossentropy(y[part], model(x[part]), from_logits=True)
            total = tf.reduce_sum(losses * weights[part])
            objective = total / weights[part].sum() + sum(model.losses)
        loss_sum += float(total)
        gradients = tape.gradient(objective, [variable.value for variable in model.trainable_variables])
        optimizer.apply([tf.convert_to_tensor(gradient) for gradient in gradients], model.trainable_variables)
    optimizer.finalize_variable_values(model.trainable_variables)
    return loss_sum


def assert_updates_are_those_of_keras(make, replicas, jit_compile=False):
    data = rows(8 * BATCHES)
    expected = constrained()
    model = constrained(replicas, make, compile_options={"jit_compile": jit_compile})
    before = expected.get_weights()
    loss_sum = by_keras(expected, make(), data)
    fit(model, data)
    for ours, theirs, old in zip(model.get_weights(), expected.get_weights(), before, strict=True):
        assert np.abs(theirs - old).max() > 1e-4, "it moved"
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    statistics = model.training_statistics()
    assert statistics["updates"] == BATCHES
    assert statistics["elements"] == data[2].size
    assert statistics["real_elements"] == data[2].sum()
    assert statistics["loss_sum"] == pytest.approx(loss_sum, rel=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_those_of_keras(name, replicas):
    assert_updates_are_those_of_keras(OPTIMIZERS[name], replicas)


def test_xla_makes_the_same_update():
    assert_updates_are_those_of_keras(OPTIMIZERS["betas"], replicas=2, jit_compile=True)


@pytest.mark.parametrize("name", ["Adadelta", "Adafactor", "Adagrad", "Adamax", "Ftrl", "Lamb", "RMSprop"])
def test_every_optimizer_that_is_taken(name):
    rate = 10.0 if name == "Adadelta" else 0.05
    assert_updates_are_those_of_keras(lambda: getattr(keras.optimizers, name)(rate), replicas=1)


@pytest.mark.parametrize("replicas", [1, 2])
def test_averages_without_an_update_leave_the_weights_alone(replicas):
    """`fit` ends in the averages, which Keras starts at 0: one batch of four is no update yet."""
    make = lambda: keras.optimizers.SGD(0.5, use_ema=True, gradient_accumulation_steps=4)  # noqa: E731
    model, unbuilt = tagger(replicas, make), tagger(replicas, make, built=False)
    model.set_weights([weight + 0.25 for weight in model.get_weights()])
    before = model.get_weights()
    for one in (model, unbuilt):
        fit(one, rows(8))
        assert one.training_statistics()["updates"] == 0
    assert all((new == old).all() for new, old in zip(model.get_weights(), before, strict=True))
    assert any(weight.any() for weight in unbuilt.get_weights())

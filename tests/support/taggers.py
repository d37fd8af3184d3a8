"""Somebody's own model and data for it, copied to replicas."""

import keras
import numpy as np
import tensorflow as tf
from replicas import strategy

import keras_transformer as kt

CLASSES = 11


class Tagger(kt.DistributedModel):
    """A class for each token."""

    def __init__(self, dropout=0.0, batch_norm=False, **kwargs):
        super().__init__(**kwargs)
        self.embedding = keras.layers.Embedding(CLASSES, 6, dtype=self.dtype_policy)
        self.dropout = keras.layers.Dropout(dropout, seed=3, dtype=self.dtype_policy)
        self.hidden = keras.layers.Dense(8, activation="tanh", dtype=self.dtype_policy)
        self.norm = keras.layers.BatchNormalization(dtype=self.dtype_policy) if batch_norm else None
        self.out = keras.layers.Dense(CLASSES, dtype=self.dtype_policy)

    def call(self, x, training=None):
        hidden = self.hidden(self.dropout(self.embedding(x), training=training))
        return self.out(hidden if self.norm is None else self.norm(hidden, training=training))


def rows(count, seed=0):
    """Token ids, a class for each, and weights: rows of 0 to 5 real tokens."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, CLASSES, (count, 5)).astype("int32")
    return x, (3 * x + 1) % CLASSES, np.float32(np.arange(5) < rng.integers(0, 6, (count, 1)))


def tagger(replicas=1, optimizer=None, built=True, compile_options=None, **options):
    """A compiled `Tagger`, the same weights each time. `optimizer` is called in the strategy's scope."""
    keras.utils.set_random_seed(1)
    with strategy(replicas).scope():
        model = Tagger(**options)
        if built:
            model(np.zeros((1, 5), "int32"))
        model.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.5),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
            **{"jit_compile": False, **(compile_options or {})},
        )
    return model


def fit(model, data, batch_size=8, **options):
    """Trains and gives the last epoch's logs."""
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
    history = model.fit(dataset, verbose=0, **options).history
    return {name: values[-1] for name, values in history.items()}


def assert_same_weights(ours, theirs, atol=1e-5):
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=atol)


def everything(model):
    """Weights, seeds, moments, averages, loss scale, counters, by name."""
    variables = [*model.variables, *(model.optimizer.variables if model.optimizer.built else ())]
    return [(variable.path, keras.ops.convert_to_numpy(variable.value)) for variable in variables]


def assert_bit_equal(model, other):
    assert len(everything(model)) == len(everything(other))
    for (name, value), (_, wanted) in zip(everything(model), everything(other), strict=True):
        assert value.dtype == wanted.dtype
        assert value.tobytes() == wanted.tobytes(), name


def copies(variable):
    """A variable's value on each replica."""
    return [value.numpy() for value in variable.value.values]

"""average_checkpoints: NumPy's mean of the weights, and of nothing else."""

import keras
import numpy as np
import pytest

import keras_transformer as kt

IDS = np.arange(12).reshape(4, 3)


class Tagger(kt.DistributedModel):
    def __init__(self, width=5, dtype=None):
        super().__init__(dtype=dtype)
        self.embedding = keras.layers.Embedding(13, width, dtype=dtype)
        self.dropout = keras.layers.Dropout(0.1, dtype=dtype)
        self.normalize = keras.layers.BatchNormalization(dtype=dtype)
        self.project = keras.layers.Dense(13, dtype=dtype)
        self.calls = self.add_weight(shape=(), dtype="int32", trainable=False, initializer="zeros", name="calls")

    def call(self, token_ids, training=None):
        if training:
            self.calls.assign_add(1)
        x = self.dropout(self.embedding(token_ids), training=training)
        return self.project(self.normalize(x, training=training))


def tagger(optimizer="adam", **options):
    model = Tagger(**options)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", jit_compile=False)
    model(IDS)
    return model


class Record(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())


def trained(directory, epochs=4, keep=None, **options):
    """A model, and its weights at each epoch's end."""
    optimizer = keras.optimizers.Adam()
    if options.get("dtype") == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)
    model, record = tagger(optimizer, **options), Record()
    model.fit(IDS, IDS, epochs=epochs, verbose=0, callbacks=[record, kt.Checkpointing(directory, keep=keep)])
    return model, record.weights


def seeds(model):
    return [keras.ops.convert_to_numpy(generator.state) for generator in model._all_seed_generators()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_float16"])
def test_it_is_numpys_mean(tmp_path, dtype):
    _, weights = trained(tmp_path, dtype=dtype)
    model = tagger(dtype=dtype)
    calls, states = int(model.calls), seeds(model)
    assert kt.average_checkpoints(tmp_path, model, last=3) == [
        tmp_path / f"update-0000000{updates}.ckpt" for updates in (2, 3, 4)
    ]
    for name, mine, *theirs in zip(model.weights, model.get_weights(), *weights[1:], strict=True):
        if mine.dtype.kind == "i":
            continue
        mean = np.mean([weight.astype("float64") for weight in theirs], axis=0).astype(mine.dtype)
        assert mine.tobytes() == mean.tobytes(), name.path
    assert int(model.calls) == calls
    np.testing.assert_array_equal(seeds(model), states)
    moving = [weight for weight in model.weights if "moving" in weight.path]
    assert len(moving) == 2, "float weights that are not trained are averaged as well"


def test_the_optimizer_does_not_matter(tmp_path):
    trained(tmp_path)
    model = tagger("sgd")
    model.fit(IDS, IDS, verbose=0)
    before = [keras.ops.convert_to_numpy(variable) for variable in model.optimizer.variables]
    assert len(kt.average_checkpoints(tmp_path, model)) == 4
    for variable, value in zip(model.optimizer.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_files_in_any_order(tmp_path):
    _, weights = trained(tmp_path)
    model = tagger()
    files = [tmp_path / "update-00000004.ckpt", str(tmp_path / "update-00000001.ckpt")]
    assert kt.average_checkpoints(files, model) == [tmp_path / name for name in ("update-00000004.ckpt", files[1])]
    np.testing.assert_array_equal(model.get_weights()[1], (weights[0][1] + weights[3][1]) / 2)


def test_damaged_files(tmp_path, caplog):
    """In a directory one is passed over, and the one before is taken; a file asked for by name is an error."""
    trained(tmp_path)
    damaged = tmp_path / "update-00000003.ckpt"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert [path.name for path in kt.average_checkpoints(tmp_path, tagger(), last=2)] == [
        "update-00000002.ckpt",
        "update-00000004.ckpt",
    ]
    assert f"passed over a damaged checkpoint: {damaged}" in caplog.text
    with pytest.raises(Exception, match=r"update-00000003\.ckpt: File is not a zip file"):
        kt.average_checkpoints([damaged], tagger())


def test_another_shape_is_refused_and_nothing_changed(tmp_path):
    trained(tmp_path, epochs=2)
    model = tagger(width=7)
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"update-00000002\.ckpt is of another configuration: .*\(13, 5\).*\(13, 7\)"):
        kt.average_checkpoints(tmp_path, model)
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_cannot_be_averaged(tmp_path):
    with pytest.raises(ValueError, match="no intact checkpoint"):
        kt.average_checkpoints(tmp_path, tagger())
    with pytest.raises(ValueError, match="no intact checkpoint"):
        kt.average_checkpoints([], tagger())
    with pytest.raises(ValueError, match="is built"):
        kt.average_checkpoints(tmp_path, Tagger())
    with pytest.raises(ValueError, match="Received: last=0"):
        kt.average_checkpoints(tmp_path, tagger(), last=0)

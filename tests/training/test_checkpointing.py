"""Checkpointing: a training that was interrupted ends as one that was not."""

import json
import logging
import os
import resource
import signal
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy
from taggers import assert_bit_equal, everything

import keras_transformer as kt

VOCABULARY = 19
BATCHES = 5
EPOCHS = 3


class Tagger(kt.DistributedModel):
    """A label for every token: as little to compile as can be."""

    def __init__(self, width=8, dropout=0.0, extra=False, **kwargs):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(VOCABULARY, width, dtype=policy)
        self.dropout = keras.layers.Dropout(dropout, dtype=policy)
        self.extra = keras.layers.Dense(width, dtype=policy) if extra else None
        self.project = keras.layers.Dense(VOCABULARY, dtype=policy)

    def call(self, token_ids, training=None):
        x = self.dropout(self.embedding(token_ids), training=training)
        return self.project(self.extra(x) if self.extra else x)


def tagger(optimizer="sgd", jit_compile=False, **options):
    keras.utils.set_random_seed(1)
    model = Tagger(**options)
    model.compile(
        optimizer,
        loss=kt.SmoothedCrossentropy(),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=jit_compile,
    )
    return model


def dataset(seed=3, batches=BATCHES):
    """Batches of 4 rows with other numbers of real tokens, in one order."""
    rng = np.random.default_rng(seed)
    real = np.arange(5) < rng.integers(1, 6, (batches, 4))[..., None]
    token_ids, labels = (rng.integers(4, VOCABULARY, (batches, 4, 5)) * real for _ in range(2))
    options = tf.data.Options()
    options.autotune.enabled = False  # it can hold the end of `fit` back
    return tf.data.Dataset.from_tensor_slices((token_ids, labels, np.float32(real))).with_options(options)


class InterruptionError(Exception):
    pass


class Interrupt(keras.callbacks.Callback):
    """Ends `fit` as a crash would, before those after it in the list see the batch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise InterruptionError


def crash(model, directory, epoch, batch, callbacks=(), batches=BATCHES, **options):
    checkpointing = kt.Checkpointing(directory, **{"every_steps": 1, **options})
    callbacks = [*callbacks, Interrupt(epoch, batch), checkpointing]
    with pytest.raises(InterruptionError):
        model.fit(dataset(batches=batches), epochs=EPOCHS, verbose=0, callbacks=callbacks)
    checkpointing.close()


def fit(model, directory, callbacks=(), epochs=EPOCHS, batches=BATCHES, **options):
    """The whole history."""
    callbacks = [*callbacks, kt.Checkpointing(directory, **options)]
    return model.fit(dataset(batches=batches), epochs=epochs, verbose=0, callbacks=callbacks).history


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def scaled(**options):
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), dynamic_growth_steps=2, **options)


SETTINGS = {
    "adam": (lambda: kt.transformer_optimizer(16, warmup_steps=4), {}),
    "accumulation": (lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2), {}),
    "ema": (lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3), {}),
    "loss_scale": (scaled, {"dtype": "mixed_float16"}),
    "bfloat16": (lambda: keras.optimizers.Adam(0.01), {"dtype": "bfloat16"}),
    "xla": (lambda: kt.transformer_optimizer(16, warmup_steps=4, use_ema=True), {"jit_compile": True}),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_resumed_training_equals_the_uninterrupted(tmp_path, setting):
    """In the middle of an epoch, with dropout: weights, optimizer, seeds and reported losses, bit for bit."""
    optimizer, options = SETTINGS[setting]
    whole, crashed, resumed = (tagger(optimizer(), dropout=0.1, **options) for _ in range(3))
    resumed(np.zeros((4, 5)))
    resumed.set_weights([weight + 1 for weight in resumed.get_weights()])
    history = whole.fit(dataset(), epochs=EPOCHS, verbose=0).history
    crash(crashed, tmp_path, epoch=1, batch=3)
    assert fit(resumed, tmp_path) == history
    assert_bit_equal(resumed, whole)
    # Two epochs are another training than one: what was compared is no constant.
    assert history["loss"][0] != history["loss"][1]


@pytest.mark.parametrize("setting", ["adam", "accumulation", "loss_scale", "ema", "xla"])
def test_on_two_replicas(tmp_path, setting):
    """The metrics of each replica are kept apart until they are read, and go on so."""
    optimizer, options = SETTINGS[setting]
    with strategy(2).scope():
        whole, crashed, resumed = (tagger(optimizer(), dropout=0.1, **options) for _ in range(3))
    history = whole.fit(dataset(), epochs=EPOCHS, verbose=0).history
    crash(crashed, tmp_path, epoch=1, batch=3)
    assert fit(resumed, tmp_path) == history
    assert_bit_equal(resumed, whole)


def test_another_number_of_replicas_goes_on(tmp_path):
    """From two replicas to one: the epoch's loss is over all its tokens still."""
    whole = tagger(keras.optimizers.SGD(0.1))
    history = whole.fit(dataset(), epochs=EPOCHS, verbose=0).history
    for two_first in (True, False):
        models = []
        for two in (two_first, not two_first):
            with strategy(1 + two).scope():
                models.append(tagger(keras.optimizers.SGD(0.1)))
        crash(models[0], tmp_path / str(two_first), epoch=1, batch=3)
        resumed = fit(models[1], tmp_path / str(two_first))
        for name, values in history.items():
            assert resumed[name] == pytest.approx(values, rel=1e-5), name


def test_steps_per_execution(tmp_path):
    """By twos, every third update is passed in the middle of an execution now and then, and saved after it."""
    whole, crashed, resumed, other = (tagger("adam", dropout=0.1) for _ in range(4))
    for model in (whole, crashed, resumed):
        model.steps_per_execution = 2
    history = whole.fit(dataset(batches=6), epochs=EPOCHS, verbose=0).history
    crash(crashed, tmp_path, epoch=1, batch=5, batches=6, every_steps=3, keep=None)
    assert names(tmp_path) == [f"update-{updates:08d}.ckpt" for updates in (4, 6, 10)]
    other.steps_per_execution = 3
    with pytest.raises(ValueError, match=r"update-00000010\.ckpt is of batch 4.*steps_per_execution=2"):
        fit(other, tmp_path, batches=6)
    assert fit(resumed, tmp_path, batches=6) == history
    assert_bit_equal(resumed, whole)


class Count(keras.callbacks.Callback):
    """Counts batches in a plain attribute, and keeps more in a state of its own."""

    def __init__(self, every=1):
        super().__init__()
        self.every = every
        self.batches = 0
        self.recent = np.zeros(2)

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        self.recent = np.array([self.recent[1], logs["loss"]])


class OwnState(keras.callbacks.Callback):
    seen = ()

    def on_train_batch_end(self, batch, logs=None):
        self.seen = {*self.seen, batch}

    def get_state(self):
        return {"seen": sorted(self.seen)}

    def set_state(self, state):
        self.seen = set(state["seen"])


def test_callbacks_keep_their_state(tmp_path):
    """Patience, best value and best weights, the lowered rate; counts are of batches that were trained."""

    def callbacks():
        stopping = keras.callbacks.EarlyStopping("loss", patience=3, min_delta=100, restore_best_weights=True)
        plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=2, min_delta=100, verbose=0)
        return [stopping, plateau, Count(), Count(), OwnState()]

    whole, crashed, resumed = (tagger("adam") for _ in range(3))
    expected, got = callbacks(), callbacks()
    got[2].every = 7  # a setting of this run
    history = whole.fit(dataset(), epochs=8, verbose=0, callbacks=expected).history
    assert len(history["loss"]) == 4
    crash(crashed, tmp_path, epoch=2, batch=3, callbacks=callbacks())
    assert fit(resumed, tmp_path, callbacks=got, epochs=8) == history
    assert_bit_equal(resumed, whole)
    for callback, other in zip(got[:2], expected[:2], strict=True):
        for name in ("wait", "best", "best_epoch", "stopped_epoch", "cooldown_counter", "min_delta"):
            assert getattr(callback, name, None) == getattr(other, name, None), name
    assert got[2].batches == got[3].batches == expected[2].batches == 4 * BATCHES
    np.testing.assert_array_equal(got[2].recent, expected[2].recent)
    assert got[2].every == 7
    assert got[4].seen == set(range(BATCHES))

    # Early stopping has ended it: another call trains no more, unless it has more patience.
    again, more = (tagger("adam") for _ in range(2))
    assert fit(again, tmp_path, callbacks=callbacks(), epochs=8) == history
    assert_bit_equal(again, whole)
    patient = keras.callbacks.EarlyStopping("loss", patience=5, min_delta=100)
    assert len(fit(more, tmp_path, callbacks=[patient], epochs=8)["loss"]) == 6


def test_a_finished_training_is_finished(tmp_path):
    first, second, third = (tagger("adam") for _ in range(3))
    history = fit(first, tmp_path)
    assert fit(second, tmp_path) == history
    assert_bit_equal(second, first)
    assert len(fit(third, tmp_path, epochs=EPOCHS + 1)["loss"]) == EPOCHS + 1
    assert third._initial_epoch is None
    assert len(third.fit(dataset(), epochs=1, verbose=0).history["loss"]) == 1


def test_it_keeps_the_newest_and_the_best(tmp_path):
    class Worse(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_bleu"] = [7.0, 30.0, 30.0, 5.0, 6.0, float("nan")][epoch]

    checkpointing = kt.Checkpointing(tmp_path, keep=2, monitor="val_bleu")
    tagger().fit(dataset(), epochs=6, verbose=0, callbacks=[Worse(), checkpointing])
    assert names(tmp_path) == [f"update-{updates:08d}.ckpt" for updates in (10, 25, 30)]
    assert checkpointing.best() == tmp_path / "update-00000010.ckpt"
    assert checkpointing.latest() == checkpointing.last_good == tmp_path / "update-00000030.ckpt"
    elsewhere = kt.Checkpointing(tmp_path, monitor="val_bleu", mode="min")
    assert elsewhere.best() == tmp_path / "update-00000025.ckpt"
    assert elsewhere.last_good == tmp_path / "update-00000030.ckpt"
    assert kt.Checkpointing(tmp_path / "none", monitor="loss").best() is None


def test_monitors_directions(tmp_path, caplog):
    with pytest.raises(ValueError, match=r"`mode` must be 'min' or 'max'.*Received: monitor='quality'"):
        fit(tagger(), tmp_path, monitor="val_quality")
    fit(tagger(), tmp_path, monitor="val_token_accuracy")  # without validation
    assert caplog.text.count("`monitor` 'val_token_accuracy' is not in the logs") == 1
    with pytest.raises(ValueError, match="mode='best'"):
        kt.Checkpointing(tmp_path, mode="best")


def damages(path):
    data = path.read_bytes()
    yield "empty", b""
    yield "cut short", data[: len(data) // 2]
    yield "last byte", data[:-1]
    for position in np.linspace(0, len(data) - 1, 60).astype(int):
        yield f"byte {position}", data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def test_a_damaged_file_is_passed_over(tmp_path, caplog):
    whole = tagger("adam")
    fit(whole, tmp_path)
    newest, before = tmp_path / "update-00000015.ckpt", tmp_path / "update-00000010.ckpt"
    checkpointing = kt.Checkpointing(tmp_path)
    whole_file = newest.read_bytes()
    passed_over = 0
    for what, data in damages(newest):
        newest.write_bytes(data)
        caplog.clear()
        latest = checkpointing.latest()
        if latest == before:
            assert caplog.text.count(f"passed over a damaged checkpoint: {newest}: ") == 1
            passed_over += 1
        else:  # a byte without meaning, the date of a member for example
            assert latest == newest, what
            assert "byte" in what
    assert passed_over > 55
    newest.write_bytes(whole_file[:-1_000])
    resumed = tagger("adam")
    assert len(fit(resumed, tmp_path, keep=1)["loss"]) == EPOCHS
    assert_bit_equal(resumed, whole)
    assert names(tmp_path) == [newest.name]
    assert checkpointing.latest() == newest


def test_no_intact_file_starts_anew_and_says_so(tmp_path, caplog):
    (tmp_path / "update-00000005.ckpt").write_bytes(b"no zip file")
    (tmp_path / "notes.txt").write_text("of the user")
    assert len(fit(tagger(), tmp_path)["loss"]) == EPOCHS
    assert f"{tmp_path}: no checkpoint is intact, training starts anew" in caplog.text
    assert (tmp_path / "notes.txt").exists()


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / ".update-00000007.ckpt.new-4242"
    left.write_bytes(b"half of it")
    fit(tagger(), tmp_path, epochs=1)
    assert names(tmp_path) == ["update-00000005.ckpt"]


class SmallFiles(keras.callbacks.Callback):
    """Lets no file grow in the second epoch, as a full disk does."""

    def on_epoch_begin(self, epoch, logs=None):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000 if epoch == 1 else hard, hard))


def test_a_full_disk_costs_a_warning(tmp_path, caplog):
    try:
        fit(tagger(), tmp_path, callbacks=[SmallFiles()], epochs=2)
    finally:
        SmallFiles().on_epoch_begin(0)
    assert names(tmp_path) == ["update-00000005.ckpt"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(f"{tmp_path / 'update-00000010.ckpt'}: not saved, training goes on: ")
    assert "File too large" in warning


@pytest.mark.parametrize(
    ("options", "optimizer", "difference"),
    [
        ({"width": 12}, "adam", r"it has tagger\S*/embeddings \(19, 8\) float32 where this model has \S+ \(19, 12\)"),
        ({"extra": True}, "adam", r"it has \S+ \(8, 19\) float32 where this model has \S+ \(8, 8\) float32"),
        ({}, "sgd", "where this optimizer has"),
        ({"dtype": "bfloat16"}, "adam", r"float32 where this model has \S+ \(19, 8\) bfloat16"),
    ],
)
def test_another_configuration_is_refused(tmp_path, options, optimizer, difference):
    fit(tagger("adam"), tmp_path, epochs=1)
    other = tagger(optimizer, **options)
    other(np.zeros((4, 5)))
    before = everything(other)
    with pytest.raises(ValueError, match=f"update-00000005.ckpt is of another configuration: .*{difference}") as error:
        fit(other, tmp_path)
    assert "\n" not in str(error.value)
    for (name, value), (_, wanted) in zip(everything(other), before, strict=False):
        assert value.tobytes() == wanted.tobytes(), name


@pytest.mark.parametrize("what", ["loss", "weight"])
def test_what_is_not_finite_is_not_saved(tmp_path, caplog, what):
    class Spoil(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and what == "loss":
                self.model.trainable_variables[0].assign(self.model.trainable_variables[0] * np.nan)

        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1 and what == "weight":
                self.model.trainable_variables[0].assign(self.model.trainable_variables[0] * np.inf)

    checkpointing = kt.Checkpointing(tmp_path)
    tagger().fit(dataset(), epochs=2, verbose=0, callbacks=[Spoil(), checkpointing])
    assert names(tmp_path) == ["update-00000005.ckpt"]
    assert checkpointing.last_good == tmp_path / "update-00000005.ckpt"
    assert caplog.text.count("update-00000010.ckpt: not saved, not finite") == 1


class Terminate(keras.callbacks.Callback):
    """Asks this process to end, in the middle of training or of validation."""

    def __init__(self, epoch, batch, hook):
        super().__init__()
        self.at = (epoch, batch, hook)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch, "train") == self.at:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_test_batch_end(self, batch, logs=None):
        if (self.epoch, batch, "test") == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("hook", "updates"), [("train", 7), ("test", 10)])
def test_sigterm_saves_and_ends_with_status_0(tmp_path, hook, updates):
    """Also in validation, which has reset the metrics of the epoch that it belongs to."""
    models = []
    for _ in range(3):
        keras.utils.set_random_seed(1)
        models.append(tagger("adam", dropout=0.1))
    whole, ended, resumed = models
    data = {"x": dataset(), "validation_data": dataset(4), "epochs": EPOCHS, "verbose": 0}
    history = whole.fit(**data).history
    checkpointing = kt.Checkpointing(tmp_path)
    with pytest.raises(SystemExit) as ended_by:
        ended.fit(**data, callbacks=[Terminate(1, 1, hook), checkpointing])
    assert ended_by.value.code == 0
    assert checkpointing.last_good.name == f"update-{updates:08d}.ckpt"
    assert ended._initial_epoch is None
    assert resumed.fit(**data, callbacks=[kt.Checkpointing(tmp_path)]).history == history
    assert_bit_equal(resumed, whole)


def test_every_minutes(tmp_path):
    checkpointing = kt.Checkpointing(tmp_path, every_minutes=1e-9, keep=None)
    tagger().fit(dataset(), epochs=1, verbose=0, callbacks=[checkpointing])
    assert len(names(tmp_path)) == BATCHES


def test_restore_false_wants_an_empty_directory(tmp_path):
    checkpointing = kt.Checkpointing(tmp_path, restore=False)
    model = tagger()
    for _ in range(2):  # its own files are no hindrance
        assert len(model.fit(dataset(), epochs=1, verbose=0, callbacks=[checkpointing]).history["loss"]) == 1
    with pytest.raises(FileExistsError, match="holds checkpoints, and `restore` is false"):
        fit(tagger(), tmp_path, restore=False)


@pytest.mark.parametrize(
    "arguments", [{"every_steps": 0}, {"every_steps": 1.5}, {"every_minutes": -1}, {"keep": 0}, {"keep": True}]
)
def test_wrong_arguments(tmp_path, arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"`{name}` must be .*Received: {name}={value}"):
        kt.Checkpointing(tmp_path, **arguments)


def test_other_models_are_refused(tmp_path):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.raises(TypeError, match=r"needs a DistributedModel.*Received: Sequential"):
        model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, callbacks=[kt.Checkpointing(tmp_path)])


def test_a_later_format_is_refused(tmp_path):
    fit(tagger(), tmp_path, epochs=1)
    path = tmp_path / "update-00000005.ckpt"
    with zipfile.ZipFile(path) as archive:
        facts = json.loads(archive.read("checkpoint.json"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint.json", json.dumps({**facts, "format": 2, "keras_transformer": "9.0"}))
    with pytest.raises(ValueError, match=r"was written by keras_transformer 9\.0"):
        fit(tagger(), tmp_path)


def test_numpy_reads_the_weights(tmp_path):
    """The file is a zip of `.npy` files: it can be read without this package."""
    model = tagger()
    fit(model, tmp_path, epochs=1)
    with np.load(tmp_path / "update-00000005.ckpt") as arrays:
        path = f"model/0000/{model.variables[0].path}"
        np.testing.assert_array_equal(arrays[path], keras.ops.convert_to_numpy(model.variables[0]))

"""Checkpointing where an epoch is cut short, where other callbacks begin an epoch, and where saving fails."""

import logging
import os
import resource
import signal

import keras
import pytest
import tensorflow as tf
from taggers import assert_bit_equal, rows, tagger

import keras_transformer as kt

BATCHES = 5
EPOCHS = 3


def dataset(seed=0, batch_size=8):
    options = tf.data.Options()
    options.autotune.enabled = False  # it can hold the end of `fit` back
    return tf.data.Dataset.from_tensor_slices(rows(8 * BATCHES, seed)).batch(batch_size).with_options(options)


def train(model, *callbacks, data=None, epochs=EPOCHS, **options):
    """The whole history."""
    return model.fit(data or dataset(), epochs=epochs, verbose=0, callbacks=list(callbacks), **options).history


def taggers(count, optimizer=lambda: keras.optimizers.Adam(0.01), **options):
    return [tagger(optimizer=optimizer, dropout=0.1, **options) for _ in range(count)]


def names(directory):
    return sorted(path.name for path in directory.iterdir())


class At(keras.callbacks.Callback):
    """Does something after a batch of training or validation."""

    def __init__(self, epoch, batch, action, hook="train"):
        super().__init__()
        self.at = (epoch, batch, hook)
        self.action = action

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch, "train") == self.at:
            self.action(self.model)

    def on_test_batch_end(self, batch, logs=None):
        if (self.epoch, batch, "test") == self.at:
            self.action(self.model)


def stop(model):
    model.stop_training = True


class KilledError(Exception):
    pass


def kill(model):
    raise KilledError


def terminate(model):
    os.kill(os.getpid(), signal.SIGTERM)


def limit_files(size=None):
    """Lets no file grow beyond, as a full disk does."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


@pytest.fixture
def full_disk():
    """A callback's action: from then on nothing can be written."""
    yield lambda model: limit_files(5_000)
    limit_files()


def test_two_of_them_are_refused(tmp_path):
    callbacks = [kt.Checkpointing(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(ValueError, match=r"`callbacks` must hold one Checkpointing.*: 2, of .*one.*two") as error:
        train(*taggers(1), *callbacks)
    assert "\n" not in str(error.value)
    assert not names(tmp_path)


class Seen(keras.callbacks.Callback):
    """Counts batches and epochs."""

    def __init__(self):
        super().__init__()
        self.batches = self.epochs = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # so Keras greets data of unknown length
@pytest.mark.parametrize("last", [False, True], ids=["middle", "last"])
@pytest.mark.parametrize("steps_per_execution", [1, 2])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_an_epoch_that_was_stopped_is_trained_to_its_end(tmp_path, known, steps_per_execution, last):
    """Validation and the callbacks have taken it for finished; the resumed run takes it up where it was."""
    data = dataset() if known else dataset().filter(lambda *batch: True)
    whole, stopped, resumed = taggers(3)
    for model in (whole, stopped, resumed):
        model.steps_per_execution = steps_per_execution
    batches = -(-BATCHES // steps_per_execution) if last else 2
    batch = batches * steps_per_execution - 1

    def callbacks():
        return [Seen(), keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=100, verbose=0)]

    expected, got = callbacks(), callbacks()
    history = train(whole, *expected, data=data, validation_data=dataset(4))
    ended = [*callbacks(), At(1, batch, stop), kt.Checkpointing(tmp_path)]
    assert len(train(stopped, *ended, data=data, validation_data=dataset(4))["loss"]) == 2
    updates = min(2 * BATCHES, BATCHES + batches * steps_per_execution)
    assert names(tmp_path) == ["update-00000005.ckpt", f"update-{updates:08d}.ckpt"]
    assert train(resumed, *got, kt.Checkpointing(tmp_path), data=data, validation_data=dataset(4)) == history
    assert_bit_equal(resumed, whole)
    assert vars(got[0]).items() >= {"batches": expected[0].batches, "epochs": EPOCHS}.items()
    assert got[1].wait == expected[1].wait


def test_stopped_by_a_callback_after_it(tmp_path):
    """It has seen the batch before that: it goes on from the checkpoint before."""
    whole, stopped, resumed = taggers(3)
    history = train(whole)
    train(stopped, kt.Checkpointing(tmp_path), At(1, 2, stop))
    assert names(tmp_path) == ["update-00000005.ckpt"]
    assert train(resumed, kt.Checkpointing(tmp_path)) == history
    assert_bit_equal(resumed, whole)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("batch", [0, 3])
def test_a_rate_that_each_epoch_lowers(tmp_path, batch, after):
    """It was lowered before the checkpoint in the middle of the epoch, and not yet before that at its begin."""

    def callbacks(*others):
        rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
        return [*others, rate] if after else [rate, *others]

    whole, killed, resumed = taggers(3)
    train(whole, *callbacks())
    with pytest.raises(KilledError):
        train(killed, *callbacks(At(1, batch, kill), kt.Checkpointing(tmp_path, every_steps=3)))
    train(resumed, *callbacks(kt.Checkpointing(tmp_path, every_steps=3)))
    assert_bit_equal(resumed, whole)


def test_keras_checkpoints_are_of_their_epoch(tmp_path):
    """`ModelCheckpoint` notes the epoch's number when it begins, and counts batches through the epochs."""

    def files(directory):
        """The weights in each file."""
        found = {}
        for path in sorted(directory.iterdir()):
            (other,) = taggers(1)
            other.load_weights(path)
            found[path.name] = [weight.tobytes() for weight in other.get_weights()]
        return found

    def callback(name):
        (tmp_path / name).mkdir(exist_ok=True)
        path = tmp_path / name / "{epoch}-{batch}.weights.h5"
        return keras.callbacks.ModelCheckpoint(path, save_freq=2, save_weights_only=True)

    whole, killed, resumed = taggers(3)
    train(whole, callback("whole"))
    with pytest.raises(KilledError):
        train(killed, callback("killed"), At(1, 0, kill), kt.Checkpointing(tmp_path / "c"))
    train(resumed, callback("resumed"), kt.Checkpointing(tmp_path / "c"))
    expected, before, got = (files(tmp_path / name) for name in ("whole", "killed", "resumed"))
    assert got
    assert before | got == expected


@pytest.mark.parametrize("on_epoch", [True, False], ids=["epochs", "tests"])
@pytest.mark.parametrize(("hook", "batch", "action"), [("train", 0, kill), ("train", 3, kill), ("test", 2, terminate)])
def test_averages_that_are_swapped_in(tmp_path, hook, batch, action, on_epoch):
    """Between epochs, and in validation, the model holds the averages and the optimizer the weights."""

    def optimizer():
        return keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5)

    def callback():
        return keras.callbacks.SwapEMAWeights(swap_on_epoch=on_epoch)

    whole, killed, resumed = taggers(3, optimizer)
    history = train(whole, callback(), validation_data=dataset(4))
    ended = [callback(), At(1, batch, action, hook), kt.Checkpointing(tmp_path, every_steps=3)]
    with pytest.raises((KilledError, SystemExit)):
        train(killed, *ended, validation_data=dataset(4))
    assert train(resumed, callback(), kt.Checkpointing(tmp_path), validation_data=dataset(4)) == history
    assert_bit_equal(resumed, whole)


@pytest.mark.parametrize("epoch", [0, 1])
def test_sigterm_on_a_full_disk(tmp_path, caplog, full_disk, epoch):
    """The status and the last line say that what was trained since is not saved."""
    callbacks = [At(epoch, 1, full_disk), At(epoch, 2, terminate), kt.Checkpointing(tmp_path)]
    with pytest.raises(SystemExit) as ended_by:
        train(*taggers(1), *callbacks)
    assert ended_by.value.code == 1
    since = tmp_path / "update-00000005.ckpt" if epoch else "the beginning"
    failed, ended = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert failed.startswith(f"{tmp_path}/update-{BATCHES * epoch + 3:08d}.ckpt: not saved")
    assert ended == f"ended by SIGTERM and not saved: the same call goes on from {since}"


def test_sigterm_saves_what_could_not_be_saved_before(tmp_path, full_disk):
    """The disk was full at the epoch's last update, and is no longer so in validation."""
    whole, ended, resumed = taggers(3)
    history = train(whole, validation_data=dataset(4))
    room = At(1, 1, lambda model: limit_files(), "test")
    callbacks = [At(1, 3, full_disk), room, At(1, 2, terminate, "test"), kt.Checkpointing(tmp_path, every_steps=5)]
    with pytest.raises(SystemExit) as ended_by:
        train(ended, *callbacks, validation_data=dataset(4))
    assert ended_by.value.code == 0
    assert names(tmp_path) == ["update-00000005.ckpt", "update-00000010.ckpt"]
    assert train(resumed, kt.Checkpointing(tmp_path), validation_data=dataset(4)) == history
    assert_bit_equal(resumed, whole)


class Notes(keras.callbacks.Callback):
    """Puts into the logs what is no number."""

    def on_epoch_end(self, epoch, logs=None):
        logs.update({"phase": "warm", "best": None, "accuracies": [0.5, epoch], "share": tf.constant(0.25)})


def test_logs_that_are_no_numbers(tmp_path):
    model, resumed = taggers(2)
    callbacks = [Notes(), kt.TrainingCurves(tmp_path / "curves", every=100), kt.Checkpointing(tmp_path / "c")]
    history = train(model, *callbacks, epochs=2)
    assert history["phase"] == ["warm"] * 2
    assert history["accuracies"] == [[0.5, 0], [0.5, 1]]
    assert len(names(tmp_path / "c")) == 2
    again = train(resumed, Notes(), kt.Checkpointing(tmp_path / "c"), epochs=2)
    assert {name: values for name, values in history.items() if name != "share"} == again


def test_other_batches_are_refused_in_the_middle_of_an_epoch_alone(tmp_path):
    """Four batches of another order, or of another size, would be passed over in place of those that were trained."""
    first, resumed, anew = taggers(3)
    train(first, At(1, 3, stop), kt.Checkpointing(tmp_path))
    with pytest.raises(
        ValueError, match=r"update-00000009\.ckpt is of batch 4 of an epoch of other batches: go on with"
    ):
        train(resumed, kt.Checkpointing(tmp_path), data=dataset(batch_size=4))
    (tmp_path / "update-00000009.ckpt").unlink()
    history = train(anew, kt.Checkpointing(tmp_path), data=dataset(batch_size=4))  # from the first epoch's end
    assert len(history["loss"]) == EPOCHS


def test_another_seed_of_the_data_is_noticed(tmp_path):
    """Of as many batches. Where what is trained on is derived from the dataset, `EpochOrder` tells."""
    words = ["um", "dois", "gato", "cão", "dorme", "corre"]
    pairs = [(" ".join(words[at % 6 :][: 1 + at % 4]), words[at % 5]) for at in range(60)]
    corpus = kt.ParallelCorpus.from_pairs(pairs)
    tokenizer = kt.Tokenizer.train([text for pair in pairs for text in pair], vocabulary_size=280)

    def data(seed):
        made = kt.make_dataset(corpus, tokenizer, batch_tokens=64, max_length=16, seed=seed)
        few = made.map(lambda inputs, labels, weights: (inputs["decoder_token_ids"] % 11, labels % 11, weights))
        return few, kt.EpochOrder(made)

    first, other, resumed = taggers(3)
    few, order = data(seed=1)
    train(first, order, At(1, 1, stop), kt.Checkpointing(tmp_path), data=few)
    few, order = data(seed=2)
    with pytest.raises(ValueError, match="is of batch 2 of an epoch of other batches"):
        train(other, order, kt.Checkpointing(tmp_path), data=few)
    few, order = data(seed=1)
    assert len(train(resumed, order, kt.Checkpointing(tmp_path), data=few)["loss"]) == EPOCHS

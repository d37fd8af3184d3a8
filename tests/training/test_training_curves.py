"""What TensorBoard shows of training: right values at each update, and steps that only grow, over resumes too."""

import logging
import pathlib
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy

import keras_transformer as kt

TOKENS = [20, 3, 0, 9]  # real ones in each of the four batches, of 20 cells


@pytest.fixture
def dataset(uneven_batches):
    inputs, labels, weights = (
        keras.tree.map_structure(lambda *arrays: np.stack(arrays), *parts)
        for parts in zip(*uneven_batches, strict=True)
    )
    return tf.data.Dataset.from_tensor_slices((inputs, labels, weights))


def curves(directory):
    """All points of every tag in the order written, file after file, up to a record that is cut short."""
    points = {}
    for path in sorted(pathlib.Path(directory).glob("events*")):
        try:
            for record in tf.data.TFRecordDataset(str(path)):
                event = tf.compat.v1.Event.FromString(record.numpy())
                for value in event.summary.value:
                    points.setdefault(value.tag, []).append((event.step, float(tf.make_ndarray(value.tensor))))
        except tf.errors.DataLossError:
            continue
    return points


def steps(points):
    return [step for step, _ in points]


def values(points):
    return [value for _, value in points]


def assert_strictly_increasing(directory):
    found = curves(directory)
    assert found
    for tag, points in found.items():
        assert steps(points) == sorted(set(steps(points))), tag


def fit(model, dataset, directory, every=1, epochs=2, **arguments):
    return model.fit(
        dataset, epochs=epochs, verbose=0, callbacks=[kt.TrainingCurves(directory, every=every)], **arguments
    ).history


def batch_losses(model, batches):
    """Sum of the real tokens' losses of each batch, and their number."""
    loss = kt.SmoothedCrossentropy(0.1)
    return [float(np.sum(loss.call(labels, model(inputs)).numpy() * weights)) for inputs, labels, weights in batches]


def test_each_updates_loss_is_the_mean_of_its_own_tokens(make_model, uneven_batches, dataset, tmp_path):
    """At a rate of 0 every update sees the same weights. A batch without tokens has no loss."""
    model = make_model(keras.optimizers.SGD(0.0))
    sums = batch_losses(model, uneven_batches)
    fit(model, dataset, tmp_path)
    points = curves(tmp_path)["update/loss"]
    assert steps(points) == [1, 2, 4, 5, 6, 8]
    means = [sums[batch] / TOKENS[batch] for batch in (0, 1, 3)]
    assert values(points) == pytest.approx(means * 2, rel=1e-5)
    assert max(means) / min(means) > 1.01


def test_a_point_spans_the_updates_since_the_last_one(make_model, uneven_batches, dataset, tmp_path):
    model = make_model(keras.optimizers.SGD(0.0))
    sums = batch_losses(model, uneven_batches)
    fit(model, dataset, tmp_path, every=3)
    found = curves(tmp_path)
    spans = [(0, 1, 2), (3, 0, 1)]  # updates 1 to 3, and 4 to 6, of which 4 ends an epoch
    expected = [sum(sums[batch] for batch in span) / sum(TOKENS[batch] for batch in span) for span in spans]
    padding = [1 - sum(TOKENS[batch] for batch in span) / 60 for span in spans]
    assert steps(found["update/loss"]) == [3, 6]
    assert values(found["update/loss"]) == pytest.approx(expected, rel=1e-5)
    assert values(found["update/padding_share"]) == pytest.approx(padding)


def test_padding_share_is_that_of_the_batch(make_model, dataset, tmp_path):
    fit(make_model(), dataset, tmp_path, epochs=1)
    points = curves(tmp_path)["update/padding_share"]
    assert steps(points) == [1, 2, 3, 4]
    assert values(points) == pytest.approx([1 - tokens / 20 for tokens in TOKENS])


@pytest.mark.parametrize("accumulation", [None, 2])
def test_the_rate_is_the_schedules(make_model, dataset, tmp_path, accumulation):
    optimizer = kt.transformer_optimizer(16, warmup_steps=3, gradient_accumulation_steps=accumulation)
    fit(make_model(optimizer), dataset, tmp_path, epochs=2)
    points = curves(tmp_path)["update/learning_rate"]
    schedule = kt.WarmupSchedule(16, warmup_steps=3)
    assert steps(points) == list(range(1, 9 if accumulation is None else 5))
    assert values(points) == pytest.approx([float(schedule(step - 1)) for step in steps(points)], rel=1e-6)
    assert len(set(values(points))) > 3


def test_the_gradients_norm_is_that_before_clipping(make_model, uneven_batches, dataset, tmp_path):
    """Against what one step of SGD at rate 1 takes off all weights."""
    free, clipped = (make_model(keras.optimizers.SGD(1.0, global_clipnorm=norm)) for norm in (None, 1e-9))
    clipped.set_weights(free.get_weights())
    norms = []
    for batch in uneven_batches:
        before = clipped.get_weights()
        free.set_weights(before)
        free.train_on_batch(*batch)
        moved = [new - old for new, old in zip(free.get_weights(), before, strict=True)]
        norms.append(np.sqrt(sum((one**2).sum() for one in moved)))
    fit(clipped, dataset, tmp_path, epochs=1)
    points = curves(tmp_path)["update/gradient_norm"]
    assert steps(points) == [1, 2, 3, 4]
    assert values(points) == pytest.approx(norms, rel=1e-3, abs=1e-6)
    assert norms[0] > 0.1


class Clock(keras.callbacks.Callback):
    """When each batch began and ended; an epoch's end takes a second."""

    def __init__(self):
        super().__init__()
        self.begins, self.ends = [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.begins.append(time.perf_counter())

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(1.0)


def test_tokens_per_second_count_the_time_in_batches_alone(make_model, dataset, tmp_path):
    """Clocks on both sides give bounds. The second point spans updates 7 to 12, and with them an epoch's end."""
    before, after = Clock(), Clock()
    callbacks = [before, kt.TrainingCurves(tmp_path, every=6), after]
    make_model().fit(dataset, epochs=3, verbose=0, callbacks=callbacks)
    tokens = sum(TOKENS[2:] + TOKENS)
    longest, shortest = (
        sum(end - begin for begin, end in zip(outer.begins[6:], inner.ends[6:], strict=True))
        for outer, inner in ((before, after), (after, before))
    )
    step, rate = curves(tmp_path)["update/tokens_per_second"][1]
    assert step == 12
    assert tokens / longest <= rate * (1 + 1e-6)
    assert tokens / shortest >= rate * (1 - 1e-6)
    assert shortest <= longest < 1.0


def test_loss_scale_and_skipped_updates_are_shown_where_there_are_any(make_model, dataset, tmp_path):
    fit(make_model(), dataset, tmp_path / "plain", epochs=1)
    assert not {"update/loss_scale", "update/skipped_updates"} & set(curves(tmp_path / "plain"))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**40)
    fit(make_model(optimizer, dtype="mixed_float16"), dataset.take(1), tmp_path / "scaled", epochs=60)
    found = curves(tmp_path / "scaled")
    skipped = values(found["update/skipped_updates"])
    assert skipped[0] > 5
    assert values(found["update/loss_scale"]) == [2.0 ** (40 - count) for count in skipped]
    assert steps(found["update/loss_scale"]) == list(range(1, 61 - int(skipped[-1])))
    assert_strictly_increasing(tmp_path / "scaled")


def test_several_updates_at_once(make_model, dataset, tmp_path):
    """Executions of three batches and of the one that is left: updates 3, 4, 7, 8."""
    model = make_model()
    model.compile("sgd", loss=kt.SmoothedCrossentropy(), jit_compile=False, steps_per_execution=3)
    fit(model, dataset, tmp_path, every=2)
    assert steps(curves(tmp_path)["update/learning_rate"]) == [3, 4, 7, 8]


def test_each_epochs_logs_are_written_whole(make_model, dataset, tmp_path):
    class Extra(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_bleu"] = epoch + 0.5

    model = make_model()
    callbacks = [Extra(), kt.TrainingCurves(tmp_path, every=100)]
    history = model.fit(dataset, validation_data=dataset, epochs=3, verbose=0, callbacks=callbacks).history
    found = curves(tmp_path)
    assert set(found) == {f"epoch/{name}" for name in history}
    assert {"loss", "val_loss", "val_perplexity", "val_bleu"} <= set(history)
    for name, expected in history.items():
        assert found[f"epoch/{name}"] == [(4 * n, pytest.approx(value)) for n, value in enumerate(expected, 1)]


def killed_and_resumed(make_model, dataset, directory, every):
    """Eight updates are written; the last checkpoint is of the fifth, and four more are made from there."""
    fit(make_model(), dataset, directory, every=every)
    model = make_model()
    model.optimizer.iterations.assign(5)
    fit(model, dataset, directory, every=every, epochs=2)
    assert int(model.optimizer.iterations) == 13


@pytest.mark.parametrize("every", [1, 2])
def test_steps_grow_over_a_resume(make_model, dataset, tmp_path, caplog, every):
    with caplog.at_level(logging.WARNING):
        killed_and_resumed(make_model, dataset, tmp_path, every)
    found = curves(tmp_path)
    assert_strictly_increasing(tmp_path)
    assert steps(found["update/learning_rate"]) == list(range(every, 14, every))
    assert steps(found["epoch/loss"]) == [4, 8, 9, 13]
    assert len(list(tmp_path.glob("events*"))) == 2
    (message,) = [record.getMessage() for record in caplog.records]
    assert "holds points up to update 8" in message


@pytest.mark.slow
def test_the_points_of_an_interrupted_run_are_those_of_one_that_was_not(make_model, dataset, tmp_path):
    """Killed after update 7, it goes on from the checkpoint of update 6: every fourth point spans what it should."""

    class Killed(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 7:
                raise KeyboardInterrupt

    def run(name, *callbacks):
        model = make_model(keras.optimizers.SGD(0.5))
        model.set_weights(weights)
        watching = [kt.TrainingCurves(tmp_path / name / str(every), every=every) for every in (1, 4)]
        model.fit(dataset, epochs=3, verbose=0, callbacks=[*watching, *callbacks])

    weights = make_model().get_weights()
    run("whole")
    for killed in ([Killed()], []):
        try:
            run("parts", *killed, kt.Checkpointing(tmp_path / "checkpoints", every_steps=2, handle_sigterm=False))
        except KeyboardInterrupt:
            assert killed
    for every in ("1", "4"):
        assert_strictly_increasing(tmp_path / "parts" / every)
        expected, found = curves(tmp_path / "whole" / every), curves(tmp_path / "parts" / every)
        assert set(found) == set(expected)
        for tag, points in expected.items():
            assert steps(found[tag]) == steps(points), tag
            if tag != "update/tokens_per_second":
                assert values(found[tag]) == values(points), tag


def test_a_point_is_on_disk_at_once(make_model, dataset, tmp_path):
    """A run that is killed has lost none."""

    class Look(keras.callbacks.Callback):
        found = []

        def on_train_batch_end(self, batch, logs=None):
            self.found.append(steps(curves(tmp_path)["update/learning_rate"])[-1])

    look = Look()
    make_model().fit(dataset, verbose=0, callbacks=[kt.TrainingCurves(tmp_path, every=1), look])
    assert look.found == [1, 2, 3, 4]


def test_a_file_cut_short_by_the_kill_is_read_as_far_as_it_goes(make_model, dataset, tmp_path):
    fit(make_model(), dataset, tmp_path)
    (path,) = tmp_path.glob("events*")
    path.write_bytes(path.read_bytes()[:-7])
    assert steps(curves(tmp_path)["epoch/loss"]) == [4, 8]
    cut = [tag for tag, points in curves(tmp_path).items() if steps(points)[-1] < 8 and tag != "update/loss"]
    assert cut
    model = make_model()
    model.optimizer.iterations.assign(5)
    fit(model, dataset, tmp_path)
    assert_strictly_increasing(tmp_path)
    for tag in cut:
        assert {4, 9, 13} <= set(steps(curves(tmp_path)[tag]))


def test_a_second_fit_goes_on(make_model, dataset, tmp_path):
    """The points of a fit that went on are those of one that did not stop."""
    whole, parts = make_model(), make_model()
    parts.set_weights(whole.get_weights())
    fit(whole, dataset, tmp_path / "whole", epochs=2)
    callback = kt.TrainingCurves(tmp_path / "parts", every=1)
    for epoch in range(2):
        parts.fit(dataset, initial_epoch=epoch, epochs=epoch + 1, verbose=0, callbacks=[callback])
    expected, found = curves(tmp_path / "whole"), curves(tmp_path / "parts")
    assert set(expected) == set(found)
    for tag, points in expected.items():
        assert steps(found[tag]) == steps(points), tag
        if tag != "update/tokens_per_second":
            assert values(found[tag]) == pytest.approx(values(points), rel=1e-5), tag


def test_batches_that_a_resume_skips_count_for_nothing(make_model, uneven_batches, dataset, tmp_path):
    model = make_model(keras.optimizers.SGD(0.0))
    sums = batch_losses(model, uneven_batches)
    model.skip_batches(1)
    fit(model, dataset, tmp_path, epochs=1)
    points = curves(tmp_path)["update/loss"]
    assert points == [(1, pytest.approx(sums[1] / 3, rel=1e-5)), (3, pytest.approx(sums[3] / 9, rel=1e-5))]
    assert values(curves(tmp_path)["update/padding_share"]) == pytest.approx([17 / 20, 1.0, 11 / 20])


@pytest.mark.slow
def test_the_time_of_skipped_batches_counts_for_nothing(make_model, dataset, tmp_path):
    """The first of the batches takes two seconds to draw: with them, there would be at most ten tokens a second."""

    def slow_first(index, batch):
        waited = tf.numpy_function(lambda index: time.sleep(0 if index else 2.0) or index, [index], tf.int64)
        with tf.control_dependencies([waited]):
            return tf.nest.map_structure(tf.identity, batch)

    slow = dataset.enumerate().map(slow_first, num_parallel_calls=None)
    model = make_model()
    model.fit(slow, epochs=1, verbose=0)  # what is traced is traced
    for skipped in (1, 0):
        model.skip_batches(skipped)
        fit(model, slow, tmp_path / str(skipped), epochs=1)
    (fast, *_), (with_it, *_) = (values(curves(tmp_path / name)["update/tokens_per_second"]) for name in "10")
    assert with_it < 20 / 2.0
    assert fast > 3 / 2.0  # and the second has three tokens


@pytest.mark.slow
def test_two_replicas_show_what_one_shows(make_model, dataset, tmp_path):
    one = make_model(keras.optimizers.SGD(0.5))
    with strategy(2).scope():
        two = make_model(keras.optimizers.SGD(0.5))
    two.set_weights(one.get_weights())
    for name, model in (("one", one), ("two", two)):
        fit(model, dataset.map(lambda *batch: batch), tmp_path / name)
    found = {name: curves(tmp_path / name) for name in ("one", "two")}
    for tag in ("update/loss", "update/gradient_norm", "update/padding_share", "update/learning_rate"):
        assert steps(found["two"][tag]) == steps(found["one"][tag]), tag
        assert values(found["two"][tag]) == pytest.approx(values(found["one"][tag]), rel=1e-4, abs=1e-6), tag


def test_statistics_are_read_once_a_point(make_model, dataset, tmp_path, monkeypatch):
    model = make_model()
    read = []
    statistics = model.training_statistics
    monkeypatch.setattr(model, "training_statistics", lambda: read.append(1) or statistics())
    fit(model, dataset, tmp_path, every=4, epochs=10)
    assert len(curves(tmp_path)["update/learning_rate"]) == 10
    assert len(read) <= 10 + 2  # and where counting starts


def test_a_model_that_does_not_count_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.raises(TypeError, match=r"needs a `DistributedModel`.* Received: a Sequential"):
        model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, callbacks=[kt.TrainingCurves(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("every", [0, -1, 2.5, True, None])
def test_every_must_be_a_positive_integer(tmp_path, every):
    with pytest.raises(ValueError, match="`every`"):
        kt.TrainingCurves(tmp_path, every=every)

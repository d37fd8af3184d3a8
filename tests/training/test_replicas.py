"""fit, evaluate and predict on several replicas: the weights and the logs of one device on the whole batch."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy
from taggers import Tagger, assert_same_weights, copies, fit, rows, tagger

import keras_transformer as kt

XLA = {"jit_compile": True}


def accumulating(batches, rate=0.5):
    """SGD that makes an update of so many batches."""
    return lambda: keras.optimizers.SGD(rate, gradient_accumulation_steps=batches if batches > 1 else None)


def twenty_updates(replicas, missing, accumulate, compile_options):
    """20 updates on batches of 8 rows, and on one device on batches that are `accumulate` times larger.

    `missing` rows of the last batch: 0, 6 or 7 leave none, two or three of four replicas without any; 3 leave two
    replicas 3 rows and 2.
    """
    data = rows(160 * accumulate - missing)
    expected, model = (
        tagger(),
        tagger(
            replicas,
            accumulating(accumulate),
            compile_options=compile_options,
        ),
    )
    expected_logs = fit(expected, data, 8 * accumulate)
    assert fit(model, data, 8) == pytest.approx(expected_logs, rel=1e-5)
    assert model.training_statistics() == pytest.approx(expected.training_statistics(), rel=1e-4)
    assert expected.training_statistics()["updates"] == 20
    assert_same_weights(model, expected)


@pytest.mark.parametrize(
    ("replicas", "missing", "accumulate"),  # each value of one with each of another
    [(1, 0, 1), (1, 6, 2), (1, 7, 4), (2, 0, 2), (2, 6, 4), (2, 7, 1), (4, 0, 4), (4, 6, 1), (4, 7, 2), (2, 3, 1)],
)
def test_twenty_updates_are_those_of_one_device_on_the_whole_batch(replicas, missing, accumulate):
    twenty_updates(replicas, missing, accumulate, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replicas", "missing", "accumulate"), [(1, 6, 2), (2, 0, 1), (2, 3, 2), (2, 6, 2), (2, 7, 1), (4, 7, 4)], ids=str
)
def test_so_they_are_under_xla(replicas, missing, accumulate):
    twenty_updates(replicas, missing, accumulate, XLA)


def test_half_an_update_waits_for_its_other_half():
    """Three batches at two an update: one update, and the third batch is in the next `fit`'s first."""
    data = rows(32)
    halves, whole = tagger(optimizer=accumulating(2)), tagger()
    fit(halves, tuple(part[:24] for part in data))
    assert halves.training_statistics()["updates"] == 1
    fit(halves, tuple(part[24:] for part in data))
    fit(whole, data, 16)
    assert_same_weights(halves, whole)


def demands_xla(model, data):
    """Whether the graph of a training step demands XLA, on which devices."""
    function = inspect.getclosurevars(model.train_function).nonlocals["function"]
    step = inspect.getclosurevars(function).nonlocals["one_step"]
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(8)
    batch = next(iter(model.distribute_strategy.experimental_distribute_dataset(dataset)))
    graph = step.get_concrete_function(batch).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    return {node.device[-5:] for node in nodes if node.attr["_XlaMustCompile"].b}


@pytest.mark.parametrize("jit_compile", [True, False])
def test_what_xla_compiles_is_in_each_replicas_graph(jit_compile, caplog):
    model = tagger(2, compile_options={"jit_compile": jit_compile})
    caplog.set_level("INFO", "keras_transformer")
    fit(model, rows(16))
    assert model.jit_compile is jit_compile
    assert demands_xla(model, rows(16)) == ({"CPU:0", "CPU:1"} if jit_compile else set())
    assert "training on 2 replicas in float32" in caplog.text
    assert ("no XLA" in caplog.text) is not jit_compile


def test_auto_on_the_cpu_compiles_nothing_and_says_so(caplog):
    caplog.set_level("INFO", "keras_transformer")
    model = tagger(compile_options={"jit_compile": "auto"})
    expected = tagger()
    assert fit(model, rows(24)) == pytest.approx(fit(expected, rows(24)), rel=1e-6)
    assert_same_weights(model, expected)
    assert demands_xla(model, rows(8)) == set()
    assert model.jit_compile is False
    assert "plain graphs, no XLA" in caplog.text
    assert model.get_compile_config()["jit_compile"] == "auto"


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("count", [1, 25])
def test_an_unbuilt_model_whose_first_batch_is_uneven(count, jit_compile):
    expected, model = tagger(), tagger(2, built=False, compile_options={"jit_compile": jit_compile})
    assert fit(model, rows(count)) == pytest.approx(fit(expected, rows(count)), rel=1e-5)
    assert_same_weights(model, expected)


@pytest.mark.parametrize("real", [(2, 30)])
def test_replicas_with_few_and_many_tokens(real):
    """2 real tokens on one replica, 30 on the other: each token weighs 1/32."""
    x, y, _ = rows(12)
    weights = np.concatenate([np.float32(np.arange(30) < count).reshape(6, 5) for count in real])
    expected, model = tagger(), tagger(2)
    assert fit(model, (x, y, weights), 12) == pytest.approx(fit(expected, (x, y, weights), 12), rel=1e-5)
    assert model.training_statistics()["real_elements"] == 32
    assert_same_weights(model, expected)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_tied_embedding_trains_on_two_replicas(make_model, uneven_batches, tmp_path, jit_compile):
    """Its gradient is sparse from the lookup and dense from the projection."""
    one = make_model(keras.optimizers.SGD(0.5))
    one.save(tmp_path / "model.keras")
    with strategy(2).scope():
        two = keras.saving.load_model(tmp_path / "model.keras")
        two.jit_compile = jit_compile
    inputs, labels, weights = (
        keras.tree.map_structure(lambda *arrays: np.stack(arrays), *parts)
        for parts in zip(*uneven_batches, strict=True)
    )
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels, weights))
    histories = [model.fit(dataset, epochs=2, verbose=0).history for model in (one, two)]
    for name, values in histories[0].items():
        assert histories[1][name] == pytest.approx(values, rel=1e-5), name
    assert_same_weights(two, one)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_replicas_draw_different_dropout_masks(jit_compile):
    """Two equal slices: with one mask for both their gradient would be that of one of them."""
    data = tuple(np.repeat(part[:4], 2, 0).reshape(4, 2, 5).transpose(1, 0, 2).reshape(8, 5) for part in rows(4))
    slice_ = tuple(part[:4] for part in data)
    assert all((part[:4] == part[4:]).all() for part in data)
    options = {"dropout": 0.5, "compile_options": {"jit_compile": jit_compile}}
    one, two = tagger(**options), tagger(2, **options)
    fit(one, slice_)
    fit(two, data)
    moved = np.abs(one.get_weights()[0] - two.get_weights()[0]).max()
    assert moved > 1e-3

    # Without dropout they are one: the difference above is the masks'.
    one, two = tagger(), tagger(2)
    fit(one, slice_)
    fit(two, data)
    assert_same_weights(one, two)


def test_seeds_go_on_the_same_on_every_replica():
    model = tagger(2, dropout=0.5)
    before = model.dropout.seed_generator.state.numpy()
    fit(model, rows(24))
    first, second = copies(model.dropout.seed_generator.state)
    assert (first == second).all()
    assert (first - before).tolist() == [0, 3]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_moving_averages_are_the_replicas_mean(jit_compile):
    model = tagger(2, batch_norm=True, compile_options={"jit_compile": jit_compile})
    fit(model, rows(32))
    for variable in model.norm.non_trainable_variables:
        first, second = copies(variable)
        assert (first == second).all()
        assert np.abs(first - (variable.name == "moving_variance")).max() > 0.001, "it moved"


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_replica_without_rows_has_no_part_in_moving_averages(jit_compile):
    """Of 17 rows the last batch is one: the second replica normalizes by the mean of nothing, which is NaN."""
    options = {"batch_norm": True, "compile_options": {"jit_compile": jit_compile}}
    one, two = tagger(**options), tagger(2, **options)
    fit(two, rows(16))
    one.set_weights(two.get_weights())
    last = tuple(part[16:] for part in rows(17))
    assert fit(two, last) == pytest.approx(fit(one, last), rel=1e-5)
    assert_same_weights(two, one)
    for variable in two.variables:
        first, second = copies(variable)
        np.testing.assert_array_equal(first, second, err_msg=variable.path)
        assert np.isfinite(first).all(), variable.path


class Counting(Tagger):
    """Counts steps, and the rows that it trains on: as it is told, and apart until it is read."""

    def __init__(self, **options):
        super().__init__()
        self.steps = self.add_weight(shape=(), dtype="int32", trainable=False)
        self.counted = self.add_weight(shape=(), dtype="int32", trainable=False, **options)
        self.apart = keras.Variable(0.0, trainable=False, aggregation="sum", synchronization="on_read")

    def call(self, x, training=None):
        if training:
            count = keras.ops.shape(x)[0]
            self.steps.assign_add(1)
            self.counted.assign_add(keras.ops.cast(count, "int32"))
            self.apart.assign_add(keras.ops.cast(count, "float32"))
        return super().call(x, training=training)


def counting(replicas=2, **options):
    with strategy(replicas).scope():
        model = Counting(**options)
        model(np.zeros((1, 5), "int32"))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss=loss, jit_compile=False)
    return model


def test_whole_numbers_are_the_replicas_mean_and_stay_equal():
    model = counting()
    fit(model, rows(13))
    assert [copy.item() for copy in copies(model.counted)] == [6, 6], "4 and 4, then 7 and 6"
    fit(model, rows(1))
    assert [copy.item() for copy in copies(model.counted)] == [7, 7], "one more, and none"
    assert [copy.item() for copy in copies(model.steps)] == [3, 3]
    assert model.apart.value.read_value().numpy() == 14


@pytest.mark.parametrize("aggregation", ["sum", "only_first_replica"])
def test_what_is_no_mean_is_refused(aggregation):
    one, two = (counting(replicas, aggregation=aggregation) for replicas in (1, 2))
    fit(one, rows(13))
    assert one.counted.numpy() == 13
    with pytest.raises(ValueError, match=f"has aggregation='{aggregation}'.*leave `aggregation` out") as caught:
        fit(two, rows(13))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("replicas", [1, 2])
def test_clipping_is_of_the_whole_batches_gradient(replicas):
    """Keras clips what each replica has, and sums that."""
    model = tagger(replicas, lambda: keras.optimizers.SGD(1.0, global_clipnorm=0.05))
    before = model.get_weights()
    fit(model, rows(8))
    moved = [new - old for new, old in zip(model.get_weights(), before, strict=True)]
    assert np.sqrt(sum((part**2).sum() for part in moved)) == pytest.approx(0.05, rel=1e-5)
    assert model.training_statistics()["gradient_norm"] > 0.1, "as it was before clipping"


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_the_rate_counts_updates(accumulate):
    schedule = kt.WarmupSchedule(16, warmup_steps=3)
    model = tagger(2, accumulating(accumulate, schedule))
    fit(model, rows(8 * 5 * accumulate))
    assert model.optimizer.iterations.numpy() == 5
    assert model.training_statistics()["learning_rate"] == pytest.approx(float(schedule(4)))
    assert float(model.optimizer.learning_rate) == pytest.approx(float(schedule(5)))


@pytest.mark.parametrize("replicas", [1, 2])
def test_ema_is_the_recurrence_and_ends_in_the_weights(replicas):
    """Keras' definition: the first update's weights, then m * average + (1 - m) * weights; `fit` ends with it."""
    data = rows(32)
    plain = tagger()
    average = None
    for start in range(0, 32, 8):
        fit(plain, tuple(part[start : start + 8] for part in data))
        weights = plain.get_weights()
        average = weights if average is None else [0.9 * a + 0.1 * w for a, w in zip(average, weights, strict=True)]
    model = tagger(replicas, lambda: keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9), compile_options=XLA)
    fit(model, data)
    for ours, expected in zip(model.get_weights(), average, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_ema_overwrites_on_two_replicas_as_on_one():
    models = [
        tagger(replicas, lambda: keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3))
        for replicas in (1, 2)
    ]
    for model in models:
        fit(model, rows(64))
    assert_same_weights(*models)


@pytest.mark.parametrize("replicas", [1, 2])
def test_data_of_unknown_length_makes_no_update_too_many(replicas):
    """TensorFlow runs what does not wait for the batch, the counters for example, although there is none."""
    dataset = tf.data.Dataset.from_tensor_slices(rows(32)).batch(8).filter(lambda *_: True)
    model = tagger(replicas)
    with pytest.warns(UserWarning, match="ran out of data"):  # Keras learns the length so
        model.fit(dataset, epochs=3, verbose=0)
    assert model.training_statistics()["updates"] == 12


@pytest.mark.parametrize("replicas", [1, 2])
def test_several_steps_an_execution(replicas):
    """7 batches at 3 an execution: the callbacks hear of the 3rd, 6th and 7th, and nothing else changes."""
    heard = []
    expected, model = tagger(), tagger(replicas, compile_options={"steps_per_execution": 3})
    logs = fit(
        model,
        rows(56),
        validation_data=tf.data.Dataset.from_tensor_slices(rows(40, seed=2)).batch(8),
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: heard.append(batch))],
    )
    validation_data = tf.data.Dataset.from_tensor_slices(rows(40, seed=2)).batch(8)
    assert logs == pytest.approx(fit(expected, rows(56), validation_data=validation_data), rel=1e-5)
    assert len(heard) == 3
    assert model.training_statistics()["updates"] == 7
    assert_same_weights(model, expected)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_evaluate_and_predict(replicas, jit_compile):
    x, y, weights = rows(25)
    expected, model = tagger(), tagger(replicas, compile_options={"jit_compile": jit_compile})
    options = {"batch_size": 8, "verbose": 0}
    logs = model.evaluate(x, y, sample_weight=weights, return_dict=True, **options)
    assert logs == pytest.approx(expected.evaluate(x, y, sample_weight=weights, return_dict=True, **options), rel=1e-5)
    np.testing.assert_allclose(model.predict(x, **options), expected.predict(x, **options), atol=1e-5)


def test_each_batchs_logs_are_over_all_replicas():
    """What a callback hears after a batch is the mean so far over all replicas, not one replica's."""
    heard = {}
    for replicas in (1, 2):
        heard[replicas] = []
        model = tagger(replicas, lambda: keras.optimizers.SGD(0.0))
        hear = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, to=heard[replicas]: to.append(float(logs["loss"]))
        )
        fit(model, rows(24), callbacks=[hear])
    assert heard[2] == pytest.approx(heard[1], rel=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_two_runs_are_equal_bit_for_bit(jit_compile):
    runs = []
    for _ in range(2):
        model = tagger(
            2, lambda: keras.optimizers.Adam(0.01), dropout=0.3, compile_options={"jit_compile": jit_compile}
        )
        fit(model, rows(160))
        runs.append(model.get_weights())
    assert all((first == second).all() for first, second in zip(*runs, strict=True))


def test_optimizers_that_update_all_at_once_are_refused():
    with pytest.raises(ValueError, match="Nadam does not update one variable at a time"):
        tagger(optimizer=lambda: keras.optimizers.Nadam())


def test_accumulation_is_in_the_compile_config():
    model = tagger(optimizer=accumulating(2))
    assert model.get_compile_config()["optimizer"]["config"]["gradient_accumulation_steps"] == 2

"""Half precision on 1 and 2 replicas: the loss scale, what is skipped and clipped, and replicas that stay equal."""

import inspect
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from taggers import assert_same_weights, copies, fit, rows, tagger

ROWS = 4  # of each replica

# At this scale a replica with 20 tokens has finite gradients. One with a single token has not: the gradient of its
# logits, the scale times (probability - 1), is beyond float16's 65,504. At half the scale it is not.
TOO_LARGE = 2.0**17

# What an update that is skipped may change.
COUNTERS = {
    "loss_sum",
    "real_elements",
    "elements",
    "gradient_norm",
    "skipped_updates",
    "step_counter",
    "dynamic_scale",
}


def batch(*counts):
    """A batch for as many replicas, with these numbers of real tokens."""
    x, y, _ = rows(ROWS * len(counts))
    weights = [np.float32(np.arange(ROWS * 5) < count).reshape(ROWS, 5) for count in counts]
    return x, y, np.concatenate(weights)


def together(*batches):
    return tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))


def train(model, *batches):
    """Trains on batches, all of one size."""
    return fit(model, together(*batches), len(batches[0][0]))


def good(replicas):
    return batch(*[20] * replicas)


def overflowing(replicas):
    """A batch whose gradients are infinite on the last replica alone, at the scale `TOO_LARGE`."""
    return batch(*[20] * (replicas - 1), 1)


def scaled(scale=2.0**15, growth=2000, optimizer=keras.optimizers.SGD, rate=0.5, **options):
    """Makes a user's own `LossScaleOptimizer`."""

    def make():
        return keras.optimizers.LossScaleOptimizer(
            optimizer(rate, **options), initial_scale=scale, dynamic_growth_steps=growth
        )

    return make


def state(model):
    """All that an update changes, on every replica."""
    replicated = model.distribute_strategy.num_replicas_in_sync > 1
    return {
        variable.path: copies(variable) if replicated else [variable.numpy()]
        for variable in (*model.trainable_variables, *model.optimizer.variables)
        if variable.path.split("/")[-1] not in COUNTERS
    }


def assert_replicas_are_equal(model):
    for variable in (*model.variables, *model.optimizer.variables):
        first, second = copies(variable)
        np.testing.assert_array_equal(first, second, err_msg=variable.path)


def moved(model, *batches):
    """What training on batches adds to the weights, as one vector."""
    before = model.get_weights()
    train(model, *batches)
    return np.concatenate([(new - old).ravel() for new, old in zip(model.get_weights(), before, strict=True)])


def assert_close(ours, expected, part=0.01):
    """Two steps: their difference has a small part of the expected one's norm."""
    assert np.linalg.norm(ours - expected) < part * np.linalg.norm(expected)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("replicas", [1, 2])
def test_an_overflow_on_one_replica_skips_the_update_on_all(replicas, accumulate, jit_compile):
    steps = accumulate if accumulate > 1 else None
    adam = {"optimizer": keras.optimizers.Adam, "rate": 0.001, "weight_decay": 0.1}
    model = tagger(
        replicas,
        scaled(TOO_LARGE, growth=2, gradient_accumulation_steps=steps, **adam),
        dtype="mixed_float16",
        compile_options={"jit_compile": jit_compile},
    )
    train(model, *[good(replicas)] * accumulate)
    statistics = model.training_statistics()
    assert (statistics["updates"], statistics["skipped_updates"]) == (1, 0)
    before = state(model)
    assert len(before) > 15, "the weights, two slots for each of them, iterations, accumulators"

    # Of two batches the first overflows: the other one is skipped with it.
    logs = train(model, overflowing(replicas), *[good(replicas)] * (accumulate - 1))
    assert np.isfinite(logs["loss"]), "it is the gradient that overflows"
    assert not np.isfinite(model.training_statistics()["gradient_norm"])
    for path, values in state(model).items():
        for value, old in zip(values, before[path], strict=True):
            np.testing.assert_array_equal(value, old, err_msg=path)
    statistics = model.training_statistics()
    assert (statistics["updates"], statistics["skipped_updates"]) == (1, 1)
    assert statistics["loss_scale"] == TOO_LARGE / 2

    # The same batch passes at half the scale, and two updates after the skipped one, not two in all, double it.
    train(model, *[overflowing(replicas)] * accumulate)
    statistics = model.training_statistics()
    assert (statistics["updates"], statistics["loss_scale"]) == (2, TOO_LARGE / 2)
    train(model, *[good(replicas)] * accumulate)
    statistics = model.training_statistics()
    assert (statistics["updates"], statistics["loss_scale"]) == (3, TOO_LARGE)
    assert statistics["skipped_updates"] == 1
    assert np.isfinite(statistics["gradient_norm"])
    if replicas == 2:
        assert_replicas_are_equal(model)


def without_a_loss(model):
    """A batch whose activations are no numbers on the last replica, for a token that no other batch has."""
    table = np.array(model.embedding.embeddings)
    table[0] = 1e5  # no float16
    model.embedding.embeddings.assign(table)
    x, y, weights = good(model.distribute_strategy.num_replicas_in_sync)
    x[-1, -1] = 0
    return x, y, weights


class LossAfterEachBatch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


@pytest.mark.parametrize(
    ("replicas", "accumulate", "jit_compile"),
    [(1, 1, False), (1, 2, False), (2, 1, False), (2, 2, False), pytest.param(2, 1, True, marks=pytest.mark.slow)],
)
def test_a_batch_without_a_finite_loss_counts_nowhere(replicas, accumulate, jit_compile):
    """Weights, moving averages and figures are those of a training without it."""
    make = scaled(2.0**11, gradient_accumulation_steps=accumulate if accumulate > 1 else None)
    options = {"dtype": "mixed_float16", "batch_norm": True, "compile_options": {"jit_compile": jit_compile}}
    skipping, other = tagger(replicas, make, **options), tagger(replicas, make, **options)
    bad = without_a_loss(skipping)
    without_a_loss(other)
    before, after = [good(replicas)] * accumulate, [batch(*[7] * replicas)] * accumulate
    filler = [batch(*[0] * replicas)] * (accumulate - 1)  # the other half of the skipped update
    heard = LossAfterEachBatch()
    logs = fit(skipping, together(*before, bad, *filler, *after), len(bad[0]), callbacks=[heard])
    assert logs == pytest.approx(train(other, *before, *after), rel=1e-3)
    assert np.isfinite(heard.losses).all()
    ours, theirs = skipping.training_statistics(), other.training_statistics()
    assert (ours["updates"], ours["skipped_updates"]) == (2, 1)
    for name in ("updates", "loss_sum", "real_elements"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-3), name
    if accumulate == 1:  # the filler moves the averages, and has elements
        assert ours["elements"] == theirs["elements"]
        assert_same_weights(skipping, other, atol=1e-3)
    for variable, expected in zip(skipping.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(np.array(variable.value), np.array(expected.value), atol=1e-3)
    assert all(np.isfinite(weight).all() for weight in skipping.get_weights())


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_loss_of_an_epoch_without_any_is_no_number(replicas):
    """0 would be the best that there ever was."""
    model = tagger(replicas, dtype="mixed_float16")
    bad = without_a_loss(model)
    assert np.isnan(train(model, bad, bad)["loss"])
    assert model.training_statistics()["skipped_updates"] == 2
    assert np.isfinite(train(model, good(replicas))["loss"])


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_after_a_skipped_update_it_is_as_if_there_had_been_none(bad):
    """A weight that is no number, on one replica, in the second of an update's two batches."""
    skipping = tagger(2, scaled(2.0**11, gradient_accumulation_steps=2), dtype="mixed_float16")
    other = tagger(2, scaled(2.0**10, gradient_accumulation_steps=2), dtype="mixed_float16")
    infinite = good(2)
    infinite[2][-1, -1] = bad
    train(skipping, good(2), infinite)
    for model in (skipping, other):
        train(model, good(2), batch(7, 3))
    statistics = skipping.training_statistics()
    assert (statistics["updates"], statistics["skipped_updates"], statistics["loss_scale"]) == (1, 1, 2.0**10)
    for ours, expected in zip(skipping.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])
def test_without_scaling_nothing_is_skipped_and_replicas_stay_equal(jit_compile):
    """As in Keras: the weights are lost, on both replicas in the same way."""
    model = tagger(2, dtype="mixed_bfloat16", compile_options={"jit_compile": jit_compile})
    infinite = good(2)
    infinite[2][-1, -1] = np.nan
    train(model, infinite)
    assert model.training_statistics()["updates"] == 1
    assert "skipped_updates" not in model.training_statistics()
    assert np.isnan(model.get_weights()[0]).any()
    assert_replicas_are_equal(model)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 2.0**15])
def test_clipping_is_of_the_unscaled_gradient_of_all(scale, replicas, accumulate):
    steps = accumulate if accumulate > 1 else None
    clip = {"rate": 1.0, "global_clipnorm": 0.05}
    model = tagger(replicas, scaled(scale, gradient_accumulation_steps=steps, **clip), dtype="mixed_float16")
    expected = tagger(optimizer=lambda: keras.optimizers.SGD(1.0, global_clipnorm=0.05))
    batches = [batch(20, 3), batch(7, 11)][:accumulate]
    step = moved(model, *batches)
    assert np.linalg.norm(step) == pytest.approx(0.05, rel=1e-4)
    assert_close(step, moved(expected, together(*batches)))
    norm = expected.training_statistics()["gradient_norm"]
    assert norm > 0.1
    assert model.training_statistics()["gradient_norm"] == pytest.approx(norm, rel=0.01)


def test_a_gradient_shorter_than_the_clipnorm_is_left_alone():
    """Scaled it is far longer."""
    step, expected = (
        moved(tagger(2, make, dtype="mixed_float16"), batch(20, 3))
        for make in (scaled(rate=1.0, global_clipnorm=10.0), scaled(rate=1.0))
    )
    np.testing.assert_array_equal(step, expected)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", ["own", "factor"])
def test_a_scaled_losss_step_is_float32s(kind, accumulate, replicas, policy):
    """A user's own `LossScaleOptimizer`, and a fixed `loss_scale_factor`."""
    steps = accumulate if accumulate > 1 else None
    make = {
        "own": scaled(2.0**9, gradient_accumulation_steps=steps),
        "factor": lambda: keras.optimizers.SGD(0.5, loss_scale_factor=300.0, gradient_accumulation_steps=steps),
    }[kind]
    model = tagger(replicas, make, dtype=policy, compile_options={"auto_scale_loss": False})
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) is (kind == "own")
    batches = [batch(20, 3), batch(2, 11)][:accumulate]
    assert_close(moved(model, *batches), moved(tagger(), together(*batches)), 1e-5 if policy == "float32" else 0.01)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("factor", [None, 2.0**15])
def test_scaling_keeps_what_float16_would_lose(factor, replicas):
    """Elements of weight 1e-8 give gradients below float16's least number; the mean over them is an ordinary one."""
    x, y, weights = batch(20, 3)
    small = x, y, weights * np.float32(1e-8)
    model = tagger(
        replicas,
        lambda: keras.optimizers.SGD(0.5, loss_scale_factor=factor),
        dtype="mixed_float16",
        compile_options={"auto_scale_loss": factor is None},
    )
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) is (factor is None)
    assert_close(moved(model, small), moved(tagger(), small))


def test_without_scaling_float16_loses_it():
    x, y, weights = batch(20, 3)
    model = tagger(2, dtype="mixed_float16", compile_options={"auto_scale_loss": False})
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert not moved(model, (x, y, weights * np.float32(1e-8))).any()


@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_twenty_steps_on_two_replicas(policy, jit_compile):
    model = tagger(2, dtype=policy, compile_options={"jit_compile": jit_compile})
    losses = [train(model, *[rows(8, seed) for seed in range(5)])["loss"] for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.8 * losses[0]
    statistics = model.training_statistics()
    assert statistics["updates"] == 20
    assert statistics.get("loss_scale") == (2.0**15 if policy == "mixed_float16" else None)
    assert statistics.get("skipped_updates", 0) == 0
    assert {weight.dtype for weight in model.get_weights()} == {np.dtype("float32")}
    assert_replicas_are_equal(model)


def test_xla_losses_are_those_of_plain_graphs():
    losses = {}
    for jit_compile in (False, True):
        model = tagger(2, lambda: keras.optimizers.Adam(0.01), compile_options={"jit_compile": jit_compile})
        losses[jit_compile] = [train(model, *[rows(8, seed) for seed in range(5)])["loss"] for _ in range(4)]
    assert losses[True] == pytest.approx(losses[False], abs=1e-4)
    assert losses[True][-1] < losses[True][0]


@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])
def test_xla_has_forward_and_backward_whole(jit_compile):
    """No matrix product of a training step is outside of what XLA compiles."""
    model = tagger(2, compile_options={"jit_compile": jit_compile})
    train(model, good(2))
    function = inspect.getclosurevars(model.train_function).nonlocals["function"]
    step = inspect.getclosurevars(function).nonlocals["one_step"]
    dataset = tf.data.Dataset.from_tensor_slices(good(2)).batch(2 * ROWS)
    distributed = model.distribute_strategy.experimental_distribute_dataset(dataset)
    graph = step.get_concrete_function(next(iter(distributed))).graph.as_graph_def()
    functions = {function.signature.name: function.node_def for function in graph.library.function}
    nodes = [*graph.node, *itertools.chain(*functions.values())]
    compiled = {node.attr["f"].func.name for node in nodes if node.attr["_XlaMustCompile"].b}
    outside = [*graph.node, *itertools.chain(*(functions[name] for name in functions.keys() - compiled))]
    assert any(node.op == "MatMul" for node in nodes)
    assert any(node.op == "MatMul" for node in outside) is not jit_compile


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_loss_scale_survives_the_file(replicas, tmp_path):
    """A saved and loaded model goes on at the scale, and with the growth counter, that it had."""
    model = tagger(replicas, scaled(TOO_LARGE, growth=3), dtype="mixed_float16")
    train(model, overflowing(replicas), good(replicas))
    model.save(tmp_path / "model.keras")
    with model.distribute_strategy.scope():
        loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"Tagger": type(model)})
    assert loaded.training_statistics() == model.training_statistics()
    assert loaded.training_statistics()["loss_scale"] == TOO_LARGE / 2
    for one in (model, loaded):
        train(one, good(replicas), good(replicas))
    assert loaded.training_statistics()["loss_scale"] == TOO_LARGE
    assert_same_weights(loaded, model)

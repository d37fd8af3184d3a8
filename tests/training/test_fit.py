"""compile, fit and evaluate in the usual way: what is reported, what is learnt from, and that XLA is XLA."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16", "float64"]


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def dataset(batches):
    """A dataset of ready batches of one shape."""
    inputs, labels, weights = (
        keras.tree.map_structure(lambda *arrays: np.stack(arrays), *parts) for parts in zip(*batches, strict=True)
    )
    return tf.data.Dataset.from_tensor_slices((inputs, labels, weights))


def expected_logs(model, batches):
    """The means over every real token of all batches, from the logits, in float64."""
    losses, hits, likelihoods = [], [], []
    for inputs, labels, weights in batches:
        logits = np.float64(numpy(model(inputs)))
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        likelihood = np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
        losses.extend((-0.9 * likelihood - 0.1 * log_p.mean(-1))[weights > 0])
        hits.extend((logits.argmax(-1) == labels)[weights > 0])
        likelihoods.extend(likelihood[weights > 0])
    assert len(losses) == 32
    return {
        "loss": np.mean(losses),
        "token_accuracy": np.mean(hits),
        "perplexity": np.exp(-np.mean(likelihoods)),
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_evaluate_reports_means_over_real_tokens(make_model, uneven_batches, policy):
    model = make_model(dtype=policy)
    logs = model.evaluate(dataset(uneven_batches), return_dict=True, verbose=0)
    expected = expected_logs(model, uneven_batches)
    assert set(logs) == set(expected)
    for name, value in expected.items():
        # In half precision a logit depends a little on the graph that computes it.
        assert logs[name] == pytest.approx(value, rel=1e-5 if policy in ("float32", "float64") else 0.02), name


def test_fit_reports_means_over_real_tokens(make_model, uneven_batches):
    """With a rate of 0 the epoch's logs are those of one model: the mean of tokens, not of batches."""
    model = make_model(keras.optimizers.SGD(0.0))
    history = model.fit(
        dataset(uneven_batches), validation_data=dataset(uneven_batches[::-1]), epochs=2, verbose=0, shuffle=False
    ).history
    for name, value in expected_logs(model, uneven_batches).items():
        assert history[name] == pytest.approx([value] * 2, rel=1e-5), name
        assert history[f"val_{name}"] == pytest.approx([value] * 2, rel=1e-5), name


def test_regularizers_count_besides_the_tokens(make_model, uneven_batches):
    """A step moves by the token mean's gradient and by the regularizer's own, not by a share of it."""
    plain, regularized = (make_model(keras.optimizers.SGD(1.0), run_eagerly=True) for _ in range(2))
    regularized.set_weights(plain.get_weights())
    dense = regularized.encoder.layers[0].feed_forward.hidden_dense
    dense.kernel.regularizer = keras.regularizers.L2(0.5)
    before = numpy(dense.kernel).copy()
    for model in (plain, regularized):
        model.train_on_batch(*uneven_batches[1])
    moved = numpy(plain.encoder.layers[0].feed_forward.hidden_dense.kernel) - numpy(dense.kernel)
    np.testing.assert_allclose(moved, before, atol=1e-5)


def gradients_of(model, batch):
    """What one step of SGD at rate 1 takes off every weight; the model stays as it was."""
    before = model.get_weights()
    model.train_on_batch(*batch)
    after = model.get_weights()
    model.set_weights(before)
    return [old - new for old, new in zip(before, after, strict=True)]


def test_the_gradient_is_that_of_the_token_mean(make_model, uneven_batches):
    """Of two batches with 20 and 3 tokens, the union's gradient is 20/23 of the one and 3/23 of the other."""
    model = make_model(keras.optimizers.SGD(1.0), run_eagerly=True)
    many, few = uneven_batches[:2]
    union = keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), many, few)
    for gradient, first, second in zip(
        gradients_of(model, union), gradients_of(model, many), gradients_of(model, few), strict=True
    ):
        np.testing.assert_allclose(gradient, (20 * first + 3 * second) / 23, atol=1e-6)


def test_filler_rows_change_nothing(make_model, uneven_batches):
    model = make_model(keras.optimizers.SGD(1.0), run_eagerly=True)
    with_filler = uneven_batches[1]
    without = keras.tree.map_structure(lambda array: array[:2], with_filler)
    for gradient, expected in zip(gradients_of(model, with_filler), gradients_of(model, without), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_a_batch_of_filler_alone_moves_no_weight(make_model, uneven_batches):
    assert not uneven_batches[2][2].any()
    model = make_model(keras.optimizers.SGD(1.0), run_eagerly=True)
    assert all((gradient == 0).all() for gradient in gradients_of(model, uneven_batches[2]))


def test_without_weights_every_position_counts_once(make_model, uneven_batches):
    model = make_model(keras.optimizers.SGD(1.0), run_eagerly=True)
    inputs, labels, _ = uneven_batches[3]
    ones = np.ones(labels.shape, "float32")
    for gradient, expected in zip(
        gradients_of(model, (inputs, labels)), gradients_of(model, (inputs, labels, ones)), strict=True
    ):
        np.testing.assert_allclose(gradient, expected, atol=1e-7)


def must_compile_calls(concrete_function):
    """The calls in a function's graph, and in the functions that it calls, which demand XLA."""
    definition = concrete_function.graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    demanding = [node.name for node in nodes if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b]
    functions = [
        function.signature.name
        for function in definition.library.function
        if "_XlaMustCompile" in function.attr and function.attr["_XlaMustCompile"].b
    ]
    return demanding + functions


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [True, False])
def test_jit_compile_is_what_was_asked_for(make_model, uneven_batches, jit_compile):
    model = make_model("sgd", jit_compile=jit_compile)
    history = model.fit(dataset(uneven_batches), epochs=1, verbose=0, shuffle=False).history
    assert np.isfinite(history["loss"]).all()
    assert model.jit_compile is jit_compile

    function = inspect.getclosurevars(model.train_function).nonlocals["function"]
    step = inspect.getclosurevars(function).nonlocals["one_step"]
    concrete = step.get_concrete_function(next(iter(dataset(uneven_batches))))
    assert bool(must_compile_calls(concrete)) is jit_compile


@pytest.mark.slow
def test_xla_gives_the_weights_that_plain_graphs_give(make_model, uneven_batches):
    plain, compiled = make_model("sgd"), make_model("sgd", jit_compile=True)
    compiled.set_weights(plain.get_weights())
    histories = [
        model.fit(dataset(uneven_batches), epochs=2, verbose=0, shuffle=False).history for model in (plain, compiled)
    ]
    for name, values in histories[0].items():
        assert histories[1][name] == pytest.approx(values, rel=1e-4), name
    for ours, theirs in zip(compiled.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_step_in_each_policy(make_model, uneven_batches, policy):
    model = make_model(kt.transformer_optimizer(16, warmup_steps=10), dtype=policy, dropout=0.1)
    before = model.get_weights()
    history = model.fit(dataset(uneven_batches[:1]), epochs=1, verbose=0, shuffle=False).history
    assert np.isfinite(history["loss"][0])
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) is (policy == "mixed_float16")
    after = model.get_weights()
    assert all(np.isfinite(weight).all() for weight in after)
    assert {weight.dtype for weight in after} == {np.dtype("float64" if policy == "float64" else "float32")}
    moved = {weight.path: not np.array_equal(*pair) for weight, *pair in zip(model.weights, before, after, strict=True)}
    # A key's bias adds the same to all of a query's scores: its gradient is 0, but for rounding.
    assert [path for path in moved if not (moved[path] or path.endswith("key/bias"))] == []


def test_loss_scaling_gives_float32s_step(make_model, uneven_batches):
    """The scaled loss's gradient is scaled back: the step is float32's but for float16's rounding."""
    exact = make_model(keras.optimizers.SGD(1.0), run_eagerly=True)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0))
    scaled = make_model(optimizer, run_eagerly=True, dtype="mixed_float16")
    scaled.set_weights(exact.get_weights())
    for gradient, expected in zip(
        gradients_of(scaled, uneven_batches[0]), gradients_of(exact, uneven_batches[0]), strict=True
    ):
        np.testing.assert_allclose(gradient, expected, atol=5e-3)

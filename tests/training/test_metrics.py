"""TokenAccuracy and Perplexity: means over real tokens, over all batches together."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt

VOCABULARY = 6


@pytest.fixture
def batches():
    """Labels, logits and weights of batches with 1, 0 and 8 real tokens."""
    rng = np.random.default_rng(1)
    batches = []
    for lengths in ([1, 0], [0, 0], [5, 3]):
        labels = rng.integers(0, VOCABULARY, (2, 5))
        logits = np.float32(rng.normal(0, 2, (2, 5, VOCABULARY)))
        batches.append((labels, logits, np.float32(np.arange(5) < np.array(lengths)[:, None])))
    return batches


def real_tokens(batches):
    """Every real token's label and log-probabilities, (9,) and (9, V)."""
    labels = np.concatenate([labels[weights > 0] for labels, _, weights in batches])
    logits = np.float64(np.concatenate([logits[weights > 0] for _, logits, weights in batches]))
    return labels, logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_token_accuracy_is_the_share_of_real_tokens(batches):
    metric = kt.TokenAccuracy()
    for labels, logits, weights in batches:
        metric.update_state(labels, logits, sample_weight=weights)
    labels, log_probabilities = real_tokens(batches)
    assert len(labels) == 9
    np.testing.assert_allclose(float(metric.result()), (log_probabilities.argmax(-1) == labels).mean(), rtol=1e-6)


def test_perplexity_is_exp_of_the_mean_over_real_tokens(batches):
    metric = kt.Perplexity()
    for labels, logits, weights in batches:
        metric.update_state(labels, logits, sample_weight=weights)
    labels, log_probabilities = real_tokens(batches)
    expected = np.exp(-log_probabilities[np.arange(9), labels].mean())
    np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)


def test_perplexity_by_hand():
    """A uniform guess over V tokens is a perplexity of V; a sure one is 1."""
    metric = kt.Perplexity()
    metric.update_state(np.array([[1, 4]]), np.zeros((1, 2, VOCABULARY), "float32"))
    np.testing.assert_allclose(float(metric.result()), VOCABULARY, rtol=1e-6)
    metric.reset_state()
    metric.update_state(np.array([[1]]), 100 * np.eye(VOCABULARY, dtype="float32")[[[1]]])
    np.testing.assert_allclose(float(metric.result()), 1, rtol=1e-6)


def test_accuracy_by_hand():
    metric = kt.TokenAccuracy()
    logits = np.eye(VOCABULARY, dtype="float32")[[[3, 2, 5, 0]]]
    metric.update_state(np.array([[3, 2, 1, 0]]), logits, sample_weight=np.array([[1, 1, 1, 0]]))
    np.testing.assert_allclose(float(metric.result()), 2 / 3, rtol=1e-6)
    metric.reset_state()
    metric.update_state(np.array([[3, 2, 1, 0]]), logits)
    np.testing.assert_allclose(float(metric.result()), 3 / 4, rtol=1e-6)


@pytest.mark.parametrize("metric_class", [kt.TokenAccuracy, kt.Perplexity])
def test_a_new_or_reset_metric_remembers_nothing(batches, metric_class):
    labels, logits, weights = batches[2]
    fresh, used = metric_class(), metric_class()
    used.update_state(*batches[0][:2])
    used.reset_state()
    for metric in (fresh, used):
        assert np.isfinite(float(metric.result()))
        metric.update_state(labels, logits, sample_weight=weights)
    assert float(used.result()) == float(fresh.result())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("metric_class", [kt.TokenAccuracy, kt.Perplexity])
def test_logits_of_any_precision_are_counted_in_float32(metric_class, dtype):
    """4,096 tokens and one more: a float16 or bfloat16 counter would stand still long before."""
    labels = np.zeros((1, 4097), "int64")
    logits = np.zeros((1, 4097, 4), "float32")
    logits[..., 0], logits[0, 4096] = 3, [0, 0, 0, 3]
    exact, metric = metric_class(), metric_class()
    exact.update_state(labels, logits)
    metric.update_state(labels, tf.cast(logits, dtype))
    np.testing.assert_allclose(float(metric.result()), float(exact.result()), rtol=1e-6)
    if metric_class is kt.TokenAccuracy:
        np.testing.assert_allclose(float(metric.result()), 4096 / 4097, rtol=1e-6)


@pytest.mark.parametrize(
    ("metric_class", "name"), [(kt.TokenAccuracy, "token_accuracy"), (kt.Perplexity, "perplexity")]
)
def test_names_and_round_trip(metric_class, name):
    assert metric_class().name == name
    again = keras.metrics.deserialize(keras.metrics.serialize(metric_class(name="mine")))
    assert isinstance(again, metric_class)
    assert again.name == "mine"

"""The same weights on Keras' JAX backend, in a process of its own."""

import keras
import numpy as np
import pytest

import keras_transformer as kt

ON_JAX = """
import sys
import keras
import keras_transformer as kt

assert keras.config.backend() == "jax"
assert "tensorflow" not in sys.modules

import jax
import numpy as np

folder = sys.argv[1]
model = keras.saving.load_model(folder + "/model.keras")
batch = dict(np.load(folder + "/batch.npz"))
logits, scores = jax.jit(lambda inputs: model(inputs, return_attention_scores=True))(batch)

other = kt.Transformer.from_config(model.get_config())
other.build()
other.load_weights(folder + "/model.weights.h5")
for ours, theirs in zip(other.variables, model.variables, strict=True):
    np.testing.assert_array_equal(ours, theirs)

state = jax.jit(lambda ids: model.init_state(*model.encode(ids), 8))(batch["encoder_token_ids"])
step, steps = jax.jit(model.step), []
for index in range(batch["decoder_token_ids"].shape[1]):
    step_logits, state = step(batch["decoder_token_ids"][:, index], index, state)
    steps.append(step_logits)

loss = kt.SmoothedCrossentropy()(batch["labels"], logits, sample_weight=batch["weights"])
rates = kt.WarmupSchedule(512)(np.array([0, 3999, 10_000]))
results = {"logits": logits, "cross": scores["cross"][-1], "steps": np.stack(steps, 1), "loss": loss, "rates": rates}
if model.compiled:
    inputs = {name: batch[name] for name in ("encoder_token_ids", "decoder_token_ids")}
    logs = model.train_on_batch(inputs, batch["labels"], batch["weights"], return_dict=True)
    results.update({f"trained_{name}": value for name, value in logs.items()})
    results["trained_embeddings"] = model.source_embedding.embeddings
np.savez(folder + "/out.npz", **results)
"""


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"normalize_first": True, "share_embeddings": False, "dropout": 0.1}])
def test_jax_gives_tensorflows_numbers(make_model, make_batch, run_python, tmp_path, options):
    """Logits, steps with the cache, loss and schedule; without dropout a step of training too."""
    model, batch = make_model(num_encoder_layers=1, **options), make_batch((7, 4, 2), (5, 5, 5))
    labels = np.roll(batch["decoder_token_ids"], -1, axis=1)
    weights = np.float32([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    trained = not options.get("dropout")
    if trained:
        metrics = [kt.TokenAccuracy(), kt.Perplexity()]
        loss = kt.SmoothedCrossentropy()
        model.compile(keras.optimizers.SGD(0.1), loss=loss, weighted_metrics=metrics, jit_compile=False)
    np.savez(tmp_path / "batch.npz", **batch, labels=labels, weights=weights)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    run_python(ON_JAX, tmp_path, KERAS_BACKEND="jax")

    logits, scores = model(batch, return_attention_scores=True)
    loss = kt.SmoothedCrossentropy()(labels, logits, sample_weight=weights)
    rates = kt.WarmupSchedule(512)(np.array([0, 3999, 10_000]))
    with np.load(tmp_path / "out.npz") as jax:
        np.testing.assert_allclose(jax["logits"], numpy(logits), atol=1e-5)
        np.testing.assert_allclose(jax["steps"], numpy(logits), atol=1e-5)
        np.testing.assert_allclose(jax["cross"], numpy(scores["cross"][-1]), atol=1e-6)
        np.testing.assert_allclose(jax["loss"], numpy(loss), rtol=1e-5)
        np.testing.assert_allclose(jax["rates"], numpy(rates), rtol=1e-6)
        assert ("trained_loss" in jax) is trained
        if trained:
            for name, value in model.train_on_batch(batch, labels, weights, return_dict=True).items():
                np.testing.assert_allclose(jax[f"trained_{name}"], value, rtol=1e-5, err_msg=name)
            embeddings = numpy(model.source_embedding.embeddings)
            np.testing.assert_allclose(jax["trained_embeddings"], embeddings, atol=1e-5)

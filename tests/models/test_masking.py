"""What may reach a logit: never a later token, never padding. Through two layers."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt

HALF_POLICIES = ["mixed_bfloat16", "mixed_float16"]


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def seeds_of(model):
    """The dropouts' states: variables that are no weights."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def with_equal_dropout(model, function):
    """`function(inputs)` that draws the same dropout masks in every call."""
    states = [numpy(seed) for seed in seeds_of(model)]

    def call(inputs):
        for seed, state in zip(seeds_of(model), states, strict=True):
            seed.assign(state)
        return numpy(function(inputs))

    return call


def change_after(position, token_ids):
    """Other tokens after `position`: every one of them, padding or not."""
    changed = token_ids.copy()
    changed[:, position + 1 :] = (token_ids[:, position + 1 :] + 11) % 29
    return changed


def compiled(kind, function):
    return function if kind == "eager" else tf.function(function, jit_compile=kind == "xla", autograph=False)


SITUATIONS = list(itertools.product(("eager",), (0.0, 0.1), (False, True), (False, True), (False, True)))
SITUATIONS += [("graph", 0.1, True, True, True), ("graph", 0.0, False, False, False)]
SITUATIONS += [pytest.param("xla", 0.1, True, True, True, marks=pytest.mark.slow), ("xla", 0.0, False, False, False)]


@pytest.mark.parametrize(("kind", "dropout", "scores", "training", "padding"), SITUATIONS)
def test_a_later_token_moves_no_logit(make_model, make_batch, kind, dropout, scores, training, padding):
    model = make_model(dropout=dropout, attention_dropout=dropout)
    batch = make_batch((7, 4, 2), (6, 3, 5)) if padding else make_batch((7, 7, 7), (6, 6, 6))

    def logits_of(inputs):
        outputs = model(inputs, training=training, return_attention_scores=scores)
        return outputs[0] if scores else outputs

    call = with_equal_dropout(model, compiled(kind, logits_of))
    before = call(batch)
    for position in (0, 2, 4):
        changed = change_after(position, batch["decoder_token_ids"])
        after = call({**batch, "decoder_token_ids": changed})
        assert np.abs(after - before)[:, : position + 1].max() < 1e-6
        assert np.abs(after - before)[:, position + 1].max() > 1e-2, "the change itself must be seen"


@pytest.mark.slow
def test_random_targets_are_not_learnt():
    """Each label is the next input: a model that saw one position ahead would learn to copy it."""
    vocabulary = 12
    rng = np.random.default_rng(4)

    def batches(count):
        tokens = rng.integers(4, vocabulary, (count, 8)).astype("int32")
        start = np.full((count, 1), 2, "int32")
        source = rng.integers(4, vocabulary, (count, 5)).astype("int32")
        inputs = {"encoder_token_ids": source, "decoder_token_ids": np.concatenate([start, tokens[:, :-1]], 1)}
        return inputs, tokens

    model = kt.Transformer(vocabulary, None, 1, 2, d_model=32, num_heads=2, d_ff=64, dropout=0.0)
    model.compile(keras.optimizers.Adam(3e-3), loss=kt.SmoothedCrossentropy(0.0))
    model.fit(*batches(6400), batch_size=64, epochs=2, verbose=0)
    loss = model.evaluate(*batches(1280), verbose=0)
    # Labels are 8 of the 12 tokens, evenly: ln 8 is all that can be known.
    assert np.log(8) - 0.005 < loss < np.log(8) + 0.1


@pytest.mark.parametrize("pads", [1, 7, 64])
@pytest.mark.parametrize("normalize_first", [False, True])
def test_more_source_padding_moves_no_logit(make_model, make_batch, pads, normalize_first):
    model = make_model(num_decoder_layers=3, normalize_first=normalize_first)
    batch = make_batch()
    wider = {**batch, "encoder_token_ids": np.pad(batch["encoder_token_ids"], ((0, 0), (0, pads)))}
    np.testing.assert_allclose(numpy(model(wider)), numpy(model(batch)), atol=1e-5)


@pytest.mark.parametrize("pads", [1, 7])
def test_more_target_padding_moves_no_real_logit(make_model, make_batch, pads):
    model = make_model()
    batch = make_batch()
    wider = {**batch, "decoder_token_ids": np.pad(batch["decoder_token_ids"], ((0, 0), (0, pads)))}
    logits = numpy(model(batch))
    np.testing.assert_allclose(numpy(model(wider))[:, : logits.shape[1]], logits, atol=1e-5)


def test_a_row_is_the_same_alone_and_among_others(make_model, make_batch):
    model = make_model()
    batch = make_batch((7, 4, 2), (5, 3, 4))
    together = numpy(model(batch))
    for row, (source, target) in enumerate([(7, 5), (4, 3), (2, 4)]):
        alone = {
            "encoder_token_ids": batch["encoder_token_ids"][row : row + 1, :source],
            "decoder_token_ids": batch["decoder_token_ids"][row : row + 1, :target],
        }
        np.testing.assert_allclose(numpy(model(alone))[0], together[row, :target], atol=1e-5)


@pytest.mark.parametrize("share_embeddings", [True, False])
@pytest.mark.parametrize("pad_token_id", [0, 5])
def test_noise_in_the_pads_embedding_moves_no_real_logit(make_model, make_batch, share_embeddings, pad_token_id):
    model = make_model(share_embeddings=share_embeddings, pad_token_id=pad_token_id)
    batch = {name: np.where(ids == 5, 6, ids) for name, ids in make_batch((7, 4, 2), (5, 3, 4)).items()}
    batch = {name: np.where(ids == 0, pad_token_id, ids) for name, ids in batch.items()}
    before = numpy(model(batch))
    for embedding in (model.source_embedding, model.target_embedding):
        noisy = numpy(embedding.embeddings).copy()
        noisy[pad_token_id] = np.random.default_rng(5).normal(0, 1e3, noisy.shape[1])
        embedding.embeddings.assign(noisy)
    difference = np.abs(numpy(model(batch)) - before)
    difference[:, :, pad_token_id] = 0  # this column is the noisy row's own, as output projection
    real = batch["decoder_token_ids"] != pad_token_id
    assert difference[real].max() == 0
    assert difference[~real].max() > 0.01, "the noise itself must be seen"


def loss_and_gradients(model, batch, labels, sample_weight):
    with tf.GradientTape() as tape:
        loss = kt.SmoothedCrossentropy()(labels, model(batch, training=True), sample_weight=sample_weight)
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


def with_an_empty_row(batch):
    """The batch and one row more, of padding alone on both sides."""
    return {name: np.concatenate([ids, np.zeros_like(ids[:1])]) for name, ids in batch.items()}


@pytest.mark.parametrize("policy", ["float32", *HALF_POLICIES, "bfloat16", "float16"])
def test_a_source_of_padding_alone_is_harmless(make_model, make_batch, policy):
    model = make_model(dtype=policy)
    two = make_batch((7, 4), (5, 3))
    three = with_an_empty_row(two)
    tolerance = 1e-5 if policy == "float32" else 0.05
    np.testing.assert_allclose(numpy(model(three))[:2], numpy(model(two)), atol=tolerance)

    labels = np.full((3, 5), 7, "int32")
    real = np.float32(three["decoder_token_ids"] != 0)
    expected_loss, expected = loss_and_gradients(model, two, labels[:2], real[:2])
    loss, gradients = loss_and_gradients(model, three, labels, real)
    np.testing.assert_allclose(numpy(loss), numpy(expected_loss), rtol=tolerance)
    for gradient, wanted in zip(gradients, expected, strict=True):
        assert np.isfinite(np.float32(numpy(gradient))).all()
        if policy == "float32":
            np.testing.assert_allclose(numpy(gradient), numpy(wanted), atol=1e-5)

    # Also where nobody took the padding's own positions out of the loss.
    loss, gradients = loss_and_gradients(model, three, labels, np.ones_like(real))
    assert all(np.isfinite(np.float32(numpy(tensor))).all() for tensor in (loss, *gradients))


@pytest.mark.slow
def test_under_xla(make_model, make_batch):
    model = make_model(dtype="mixed_float16", num_encoder_layers=1, num_decoder_layers=1)
    three = with_an_empty_row(make_batch((7, 4), (5, 3)))
    labels, weight = np.full((3, 5), 7, "int32"), np.ones((3, 5), "float32")
    run = tf.function(lambda batch: loss_and_gradients(model, batch, labels, weight), jit_compile=True, autograph=False)
    loss, gradients = run(three)
    assert all(np.isfinite(np.float32(numpy(tensor))).all() for tensor in (loss, *gradients))


def test_returned_weights(make_model, make_batch):
    model = make_model(num_encoder_layers=3)
    batch = make_batch((7, 4, 2), (5, 3, 4))
    source_real, target_real = (batch[name] != 0 for name in ("encoder_token_ids", "decoder_token_ids"))
    _, scores = model(batch, return_attention_scores=True)
    earlier = np.tril(np.ones((5, 5), bool))
    visible = {
        "encoder": np.broadcast_to(source_real[:, None, None, :], (3, 2, 7, 7)),
        "decoder": np.broadcast_to((target_real[:, None, :] & earlier)[:, None], (3, 2, 5, 5)),
        "cross": np.broadcast_to(source_real[:, None, None, :], (3, 2, 5, 7)),
    }
    assert set(scores) == set(visible)
    assert {name: len(layers) for name, layers in scores.items()} == {"encoder": 3, "decoder": 2, "cross": 2}
    for name, layers in scores.items():
        for weights in layers:
            assert weights.shape == visible[name].shape
            assert weights.dtype == "float32"
            weights = numpy(weights)
            assert (weights[~visible[name]] == 0).all()
            assert (weights[visible[name]] > 0).all()
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_weights_of_an_empty_source_are_zero(make_model):
    model = make_model()
    batch = {"encoder_token_ids": np.zeros((1, 4), "int32"), "decoder_token_ids": np.array([[2, 6]], "int32")}
    logits, scores = model(batch, return_attention_scores=True)
    assert np.isfinite(numpy(logits)).all()
    for weights in (*scores["encoder"], *scores["cross"]):
        assert (numpy(weights) == 0).all()

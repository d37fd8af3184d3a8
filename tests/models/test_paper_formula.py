"""The whole model against the paper's formulas, written out in NumPy float64."""

import keras
import numpy as np
import pytest


def positions(length, d_model):
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, 2 * i], table[position, 2 * i + 1] = np.sin(angle), np.cos(angle)
    return table


def attend(layer, query, memory, visible):
    """One row: query (T, D), memory (S, D), visible (T, S)."""
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = (np.float64(weight) for weight in layer.get_weights())
    output = b_o
    for head in range(w_q.shape[1]):
        q = query @ w_q[:, head] + b_q[head]
        k = memory @ w_k[:, head] + b_k[head]
        v = memory @ w_v[:, head] + b_v[head]
        scores = np.where(visible, q @ k.T / np.sqrt(k.shape[-1]), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        output = output + weights / weights.sum(-1, keepdims=True) @ v @ w_o[head]
    return output


def feed_forward(layer, x):
    w_1, b_1, w_2, b_2 = (np.float64(weight) for weight in layer.get_weights())
    return np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2


def normalize(layer, x):
    gamma, beta = (np.float64(weight) for weight in layer.get_weights())
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma + beta


def sublayer(residual, x, function, normalize_first):
    if normalize_first:
        return x + function(normalize(residual.norm, x))
    return normalize(residual.norm, x + function(x))


def logits_of_one_row(model, source_ids, target_ids, normalize_first):
    source_matrix, target_matrix = (
        np.float64(keras.ops.convert_to_numpy(embedding.embeddings))
        for embedding in (model.source_embedding, model.target_embedding)
    )
    d_model = source_matrix.shape[1]
    source_real = np.broadcast_to(source_ids != 0, (len(source_ids), len(source_ids)))
    memory = source_matrix[source_ids] * np.sqrt(d_model) + positions(len(source_ids), d_model)
    for layer in model.encoder.layers:
        memory = sublayer(
            layer.self_attention_residual,
            memory,
            lambda x, layer=layer: attend(layer.self_attention, x, x, source_real),
            normalize_first,
        )
        memory = sublayer(
            layer.feed_forward_residual,
            memory,
            lambda x, layer=layer: feed_forward(layer.feed_forward, x),
            normalize_first,
        )
    if normalize_first:
        memory = normalize(model.encoder.final_norm, memory)

    earlier = np.tril(np.ones((len(target_ids), len(target_ids)), bool)) & (target_ids != 0)
    seen = np.broadcast_to(source_ids != 0, (len(target_ids), len(source_ids)))
    x = target_matrix[target_ids] * np.sqrt(d_model) + positions(len(target_ids), d_model)
    for layer in model.decoder.layers:
        x = sublayer(
            layer.self_attention_residual,
            x,
            lambda x, layer=layer: attend(layer.self_attention, x, x, earlier),
            normalize_first,
        )
        x = sublayer(
            layer.cross_attention_residual,
            x,
            lambda x, layer=layer: attend(layer.cross_attention, x, memory, seen),
            normalize_first,
        )
        x = sublayer(
            layer.feed_forward_residual,
            x,
            lambda x, layer=layer: feed_forward(layer.feed_forward, x),
            normalize_first,
        )
    if normalize_first:
        x = normalize(model.decoder.final_norm, x)
    return x @ target_matrix.T


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"d_model": 12, "num_heads": 5, "key_dim": 3, "value_dim": 7}])
def test_logits_are_the_papers(make_model, make_batch, normalize_first, sizes):
    model = make_model(normalize_first=normalize_first, num_decoder_layers=3, **sizes)
    batch = make_batch()
    logits = keras.ops.convert_to_numpy(model(batch))
    for row, (source_ids, target_ids) in enumerate(
        zip(batch["encoder_token_ids"], batch["decoder_token_ids"], strict=True)
    ):
        expected = logits_of_one_row(model, source_ids, target_ids, normalize_first)
        np.testing.assert_allclose(logits[row], expected, rtol=1e-4, atol=1e-4)


def test_float64_logits_are_the_papers_to_ten_digits(make_model, make_batch):
    model = make_model(dtype="float64", share_embeddings=False, target_vocabulary_size=31)
    batch = make_batch()
    logits = keras.ops.convert_to_numpy(model(batch))
    assert logits.dtype == "float64"
    expected = logits_of_one_row(model, batch["encoder_token_ids"][1], batch["decoder_token_ids"][1], False)
    # The table of positions is kept as float32: that is where the digits end.
    np.testing.assert_allclose(logits[1], expected, atol=1e-5)

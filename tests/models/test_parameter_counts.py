"""Table 3 of the paper: how many weights each variation has, in millions."""

import keras
import pytest

import keras_transformer as kt

BASE = {"d_model": 512, "num_heads": 8, "d_ff": 2048, "depth": 6, "key_dim": 64, "value_dim": 64, "vocabulary": 41_000}


def count_from_paper(vocabulary, depth, d_model, num_heads, d_ff, key_dim, value_dim):
    """Sections 3.1 to 3.4, with Keras' biases in the attention projections, and one shared embedding matrix."""
    head_sizes = num_heads * (2 * key_dim + value_dim)
    attention = d_model * head_sizes + head_sizes  # W^Q, W^K, W^V and their biases
    attention += num_heads * value_dim * d_model + d_model  # W^O
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return vocabulary * d_model + depth * (encoder_layer + decoder_layer)


def count_built(vocabulary=41_000, depth=6, **sizes):
    """The weights of a model, the base model but for `sizes`, that is built without memory for their values."""
    with keras.StatelessScope(initialize_variables=False):
        model = kt.Transformer(vocabulary, num_encoder_layers=depth, num_decoder_layers=depth, **sizes)
        model.build()
        return model.count_params()


@pytest.mark.parametrize(
    ("millions", "changes"),
    [
        (65, {}),
        (58, {"key_dim": 16}),
        (60, {"key_dim": 32}),
        (36, {"depth": 2}),
        (50, {"depth": 4}),
        (80, {"depth": 8}),
        (28, {"d_model": 256, "key_dim": 32, "value_dim": 32}),
        (168, {"d_model": 1024, "key_dim": 128, "value_dim": 128}),
        (53, {"d_ff": 1024}),
        (90, {"d_ff": 4096}),
        (213, {"vocabulary": 36_000, "d_model": 1024, "d_ff": 4096, "num_heads": 16}),
    ],
)
def test_rows_of_table_3(millions, changes):
    built = count_built(**changes)
    assert built == count_from_paper(**{**BASE, **changes})
    assert round(built / 1e6) == millions


@pytest.mark.parametrize("normalize_first", [False, True])
def test_formula_counts_the_weights_that_a_built_model_holds(normalize_first):
    sizes = {"d_model": 10, "num_heads": 3, "d_ff": 17, "key_dim": 5, "value_dim": 7}
    model = kt.Transformer(23, num_encoder_layers=2, num_decoder_layers=2, normalize_first=normalize_first, **sizes)
    model.build()
    final_norms = 2 * 2 * 10 if normalize_first else 0
    held = sum(int(keras.ops.size(weight)) for weight in model.weights)
    assert held == model.count_params() == count_from_paper(23, 2, **sizes) + final_norms


def test_presets_have_the_sizes_that_the_docs_name():
    for name, depth, d_model, num_heads, d_ff in [
        ("tiny", 4, 128, 4, 256),
        ("small", 3, 256, 4, 1024),
        ("base", 6, 512, 8, 2048),
        ("big", 6, 1024, 16, 4096),
    ]:
        with keras.StatelessScope(initialize_variables=False):
            model = kt.Transformer.from_preset(name, source_vocabulary_size=8000)
            model.build()
        head = d_model // num_heads
        assert model.count_params() == count_from_paper(8000, depth, d_model, num_heads, d_ff, head, head), name


def test_separate_embeddings_add_one_matrix():
    shared = count_built(100, 1, d_model=16, d_ff=8)
    assert count_built(100, 1, d_model=16, d_ff=8, share_embeddings=False) == shared + 100 * 16
    two_vocabularies = count_built(100, 1, d_model=16, d_ff=8, share_embeddings=False, target_vocabulary_size=70)
    assert two_vocabularies == shared + 70 * 16

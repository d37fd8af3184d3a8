"""The decoder layer: the paper's formula, a future and a padding that nobody sees, and decoding step by step.

What must hold in a stack is shown in a stack of two: a fault of masks often shows from the second layer on.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from keras_transformer import DecoderLayer, EncoderLayer, PositionalEmbedding, padding_mask

# Batch, target, source, heads, widths of target and source.
B, T, S, N, D, D_S, D_FF, V = 2, 5, 7, 3, 12, 10, 11, 17
SOURCE_IDS = np.array([[5, 3, 8, 1, 0, 0, 0], [2, 9, 4, 4, 7, 1, 0]])
TARGET_IDS = np.array([[2, 6, 4, 0, 0], [2, 11, 16, 3, 9]])

# In 16 bits a few roundings of numbers below 4.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "mixed_float16": 5e-3, "mixed_bfloat16": 4e-2}


class TestHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            DecoderLayer,
            init_kwargs={"num_heads": N, "d_ff": D_FF},
            input_shape={"decoder_sequence_shape": (B, T, D), "encoder_sequence_shape": (B, S, D_S)},
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=26,  # two attentions of 8, feed-forward 4, three layer norms of 2
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=3,  # the three residual connections
            expected_num_losses=0,
            supports_masking=True,
            run_training_check=False,
        )

    def test_keras_own_harness_with_every_argument(self):
        self.run_layer_test(
            DecoderLayer,
            init_kwargs={
                "num_heads": N,
                "d_ff": D_FF,
                "dropout": 0.2,
                "attention_dropout": 0.1,
                "activation": "gelu",
                "normalize_first": True,
                "layer_norm_epsilon": 1e-5,
                "key_dim": 5,
                "value_dim": 2,
                "kernel_initializer": "he_normal",
                "bias_initializer": "ones",
                "seed": 3,
            },
            input_shape={"decoder_sequence_shape": (B, T, D), "encoder_sequence_shape": (B, S, D_S)},
            call_kwargs={"return_attention_scores": True},
            expected_output_shape=((B, T, D), (B, N, T, T), (B, N, T, S)),
            expected_num_trainable_weights=26,
            expected_num_seed_generators=5,
            supports_masking=True,
            run_training_check=False,
        )


@pytest.fixture
def make_stack(randomize):
    """`make_stack(**arguments)`: two decoder layers, every weight random."""

    def make(**arguments):
        layers = [DecoderLayer(N, D_FF, **{"dropout": 0.0, **arguments}) for _ in range(2)]
        for layer in layers:
            layer.build((B, T, D), (B, S, D_S))
            randomize(layer)
        return layers

    return make


def run_stack(layers, x, memory, **call):
    for layer in layers:
        x = layer(x, memory, **call)
        x = x[0] if call.get("return_attention_scores") else x
    return x


# --- the formula


@pytest.mark.parametrize("normalize_first", [False, True], ids=["post-norm", "pre-norm"])
def test_equals_the_papers_formula(rng, make_stack, reference, normalize_first):
    layer = make_stack(normalize_first=normalize_first)[0]
    x, memory, source_mask = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D_S)), padding_mask(SOURCE_IDS)

    output, self_scores, cross_scores = layer(x, memory, encoder_padding_mask=source_mask, return_attention_scores=True)

    def connect(name, x, sublayer):
        weights = getattr(layer, f"{name}_residual").get_weights()
        if normalize_first:
            return x + sublayer(reference.layer_norm(weights, x))
        return reference.layer_norm(weights, x + sublayer(x))

    expected_scores = []

    def self_attention(x):
        attended, scores = reference.multi_head_attention(
            layer.self_attention.get_weights(), x, x, np.tril(np.ones((T, T), bool))
        )
        expected_scores.append(scores)
        return attended

    def cross_attention(x):
        attended, scores = reference.multi_head_attention(
            layer.cross_attention.get_weights(), x, memory, np.asarray(source_mask)
        )
        expected_scores.append(scores)
        return attended

    x = connect("self_attention", x, self_attention)
    x = connect("cross_attention", x, cross_attention)
    x = connect("feed_forward", x, lambda x: reference.feed_forward(layer.feed_forward.get_weights(), x))
    np.testing.assert_allclose(output, x, atol=1e-5)
    np.testing.assert_allclose(self_scores, expected_scores[0], atol=1e-5)
    np.testing.assert_allclose(cross_scores, expected_scores[1], atol=1e-5)


# --- the future


COMPILERS = {
    "eager": lambda function: function,
    "tf.function": tf.function,
    "XLA": lambda function: tf.function(function, jit_compile=True),
}


# Every combination eagerly; compiled, every pair of values.
SETTINGS = [
    *(("eager", *setting) for setting in itertools.product((0.0, 0.1), (False, True), (False, True), (False, True))),
    ("tf.function", 0.0, False, False, False),
    ("tf.function", 0.1, True, True, False),
    ("tf.function", 0.1, False, True, True),
    ("tf.function", 0.0, True, False, True),
    ("XLA", 0.1, False, False, False),
    ("XLA", 0.1, True, True, True),
    ("XLA", 0.0, True, True, False),
    ("XLA", 0.0, False, True, True),
    ("XLA", 0.1, True, False, True),
]


@pytest.mark.parametrize(("run", "dropout", "training", "with_scores", "padding"), SETTINGS)
def test_no_position_sees_the_future_through_two_layers(rng, make_stack, run, dropout, training, with_scores, padding):
    # New tokens after position t leave the outputs at 0..t as they were, and move all others.
    layers = make_stack(dropout=dropout, attention_dropout=dropout, seed=3)
    seeds = [variable for layer in layers for variable in layer.non_trainable_variables]
    fresh_seeds = [np.asarray(seed) for seed in seeds]
    memory = tf.constant(rng.normal(size=(B, S, D_S)), "float32")
    masks = (
        {"attention_mask": padding_mask(TARGET_IDS), "encoder_padding_mask": padding_mask(SOURCE_IDS)}
        if padding
        else {}
    )

    @COMPILERS[run]
    def decode(x):
        return run_stack(layers, x, memory, training=training, return_attention_scores=with_scores, **masks)

    def decode_afresh(x):
        for seed, value in zip(seeds, fresh_seeds, strict=True):
            seed.assign(value)  # so that every run drops alike
        return np.asarray(decode(tf.constant(x, "float32")))

    x = rng.normal(size=(B, T, D))
    before = decode_afresh(x)
    np.testing.assert_array_equal(decode_afresh(x), before)
    for t in range(T - 1):
        changed = x.copy()
        changed[:, t + 1 :] = rng.normal(size=(B, T - t - 1, D))
        after = decode_afresh(changed)
        np.testing.assert_allclose(after[:, : t + 1], before[:, : t + 1], atol=1e-6, err_msg=f"{t=}")
        assert (np.abs(after - before)[:, t + 1 :].max(axis=-1) > 1e-3).all()


def test_self_attention_weights_of_the_future_are_exactly_0_and_rows_sum_to_one(rng, make_stack):
    _, scores, _ = make_stack()[0](
        rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D_S)), return_attention_scores=True
    )

    np.testing.assert_array_equal(
        np.asarray(scores) != 0, np.broadcast_to(np.tril(np.ones((T, T), bool)), (B, N, T, T))
    )
    np.testing.assert_allclose(np.asarray(scores).sum(axis=-1), np.ones((B, N, T)), rtol=1e-6)


def test_a_target_mask_hides_keys_besides_the_future(rng, make_stack):
    _, scores, _ = make_stack()[0](
        rng.normal(size=(B, T, D)),
        rng.normal(size=(B, S, D_S)),
        attention_mask=padding_mask(TARGET_IDS),
        return_attention_scores=True,
    )

    allowed = np.tril(np.ones((T, T), bool)) & (TARGET_IDS != 0)[:, None, :]
    np.testing.assert_array_equal(np.asarray(scores) != 0, np.broadcast_to(allowed[:, None], (B, N, T, T)))


# --- padding


@pytest.fixture
def make_translator(randomize):
    """`make_translator(implicit)`: embedding, an encoder layer and two decoder layers, composed by hand."""

    def make(implicit, **options):
        embedding = PositionalEmbedding(V, D, mask_zero=implicit, **options)
        encoder_layer = EncoderLayer(N, D_FF, dropout=0.0, **options)
        decoder_layers = [DecoderLayer(N, D_FF, dropout=0.0, **options) for _ in range(2)]

        def translate(source_ids, target_ids):
            """The target's vectors, and each decoder layer's cross-attention weights."""
            source_mask = None if implicit else padding_mask(source_ids)
            target_mask = None if implicit else padding_mask(target_ids)
            memory = encoder_layer(embedding(source_ids), attention_mask=source_mask)
            x, all_scores = embedding(target_ids), []
            for layer in decoder_layers:
                x, _, scores = layer(
                    x,
                    memory,
                    attention_mask=target_mask,
                    encoder_padding_mask=source_mask,
                    return_attention_scores=True,
                )
                all_scores.append(np.asarray(scores))
            return x, all_scores

        translate(SOURCE_IDS, TARGET_IDS)
        translate.embedding = embedding
        translate.layers = [embedding, encoder_layer, *decoder_layers]
        for layer in translate.layers:
            randomize(layer)
        return translate

    return make


implicit_or_explicit = pytest.mark.parametrize("implicit", [False, True], ids=["explicit masks", "implicit masks"])


@implicit_or_explicit
@pytest.mark.parametrize("pads", [1, 7, 64])
def test_padding_appended_to_the_source_changes_nothing(make_translator, implicit, pads):
    translate = make_translator(implicit)
    padded_ids = np.pad(SOURCE_IDS, [(0, 0), (0, pads)])

    expected, _ = translate(SOURCE_IDS, TARGET_IDS)
    output, all_scores = translate(padded_ids, TARGET_IDS)

    np.testing.assert_allclose(output, expected, atol=1e-5)
    for scores in all_scores:
        np.testing.assert_array_equal(
            scores != 0, np.broadcast_to((padded_ids != 0)[:, None, None, :], (B, N, T, S + pads))
        )


@implicit_or_explicit
def test_noise_in_the_pad_tokens_embedding_changes_no_real_output(make_translator, rng, implicit):
    # Sources of 7 and targets of 5 tokens, another number of pads in each row.
    translate = make_translator(implicit)
    real = TARGET_IDS != 0
    before, _ = translate(SOURCE_IDS, TARGET_IDS)

    matrix = translate.embedding.get_weights()[0]
    matrix[0] = 1000 * rng.normal(size=D)
    translate.embedding.set_weights([matrix])
    after, _ = translate(SOURCE_IDS, TARGET_IDS)

    np.testing.assert_allclose(np.asarray(after)[real], np.asarray(before)[real], atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_source_that_is_all_padding_harms_neither_itself_nor_its_neighbours(make_translator, policy):
    translate = make_translator(implicit=False, dtype=policy)
    source_ids, target_ids = np.insert(SOURCE_IDS, 1, 0, axis=0), np.insert(TARGET_IDS, 1, [2, 7, 7, 7, 0], axis=0)
    variables = [variable for layer in translate.layers for variable in layer.trainable_variables]

    expected, _ = translate(SOURCE_IDS, TARGET_IDS)
    with tf.GradientTape() as tape:
        output, all_scores = translate(source_ids, target_ids)
        loss = tf.reduce_mean(tf.square(tf.cast(output, "float32")))
    gradients = tape.gradient(loss, [variable.value for variable in variables])

    assert np.isfinite(loss)
    for variable, gradient in zip(variables, gradients, strict=True):
        assert np.isfinite(np.asarray(tf.convert_to_tensor(gradient))).all(), variable.path
    assert all((scores[1] == 0).all() for scores in all_scores)
    np.testing.assert_allclose(
        np.asarray(output, "float64")[[0, 2]], np.asarray(expected, "float64"), atol=TOLERANCE[policy]
    )


def test_explicit_and_implicit_source_masks_hold_together(rng, make_stack):
    memory = keras.layers.Embedding(V, D_S, mask_zero=True)(SOURCE_IDS)
    not_key_1 = np.arange(S)[None, None, :] != 1

    _, _, scores = make_stack()[0](
        rng.normal(size=(B, T, D)), memory, encoder_padding_mask=not_key_1, return_attention_scores=True
    )

    both = (SOURCE_IDS != 0)[:, None, None, :] & not_key_1[:, None]
    np.testing.assert_array_equal(np.asarray(scores) != 0, np.broadcast_to(both, (B, N, T, S)))


def test_implicit_masks_may_be_given_by_hand(rng, make_stack):
    _, self_scores, cross_scores = make_stack()[0](
        rng.normal(size=(B, T, D)),
        rng.normal(size=(B, S, D_S)),
        decoder_sequence_mask=TARGET_IDS != 0,
        encoder_sequence_mask=SOURCE_IDS != 0,
        return_attention_scores=True,
    )

    allowed = np.tril(np.ones((T, T), bool)) & (TARGET_IDS != 0)[:, None, :]
    np.testing.assert_array_equal(np.asarray(self_scores) != 0, np.broadcast_to(allowed[:, None], (B, N, T, T)))
    np.testing.assert_array_equal(
        np.asarray(cross_scores) != 0, np.broadcast_to((SOURCE_IDS != 0)[:, None, None, :], (B, N, T, S))
    )


def test_target_padding_hides_nothing_of_the_source(rng, make_stack):
    target = keras.layers.Embedding(V, D, mask_zero=True)(TARGET_IDS)

    _, _, scores = make_stack()[0](target, rng.normal(size=(B, S, D_S)), return_attention_scores=True)

    assert (np.asarray(scores) > 0).all()


# --- the cache

LENGTH = 8  # the longest target that the cache holds, longer than T


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3)], ids=str)
def test_step_by_step_equals_the_whole_pass_through_two_layers(rng, make_stack, policy, chunks):
    layers = make_stack(dtype=policy)
    x, memory = (tf.cast(rng.normal(size=shape), layers[0].compute_dtype) for shape in ((B, T, D), (B, S, D_S)))
    mask = padding_mask(SOURCE_IDS)
    whole = np.asarray(run_stack(layers, x, memory, encoder_padding_mask=mask), "float64")

    caches, index, steps_output = [layer.init_cache(memory, LENGTH) for layer in layers], 0, []
    for steps in chunks:
        step = x[:, index : index + steps]
        for i, layer in enumerate(layers):
            step, caches[i] = layer(step, encoder_padding_mask=mask, cache=caches[i], cache_index=index)
        steps_output.append(np.asarray(step, "float64"))
        index += steps

    np.testing.assert_allclose(np.concatenate(steps_output, axis=1), whole, atol=TOLERANCE[policy])


def test_a_cached_step_gives_scores_then_the_cache(rng, make_stack):
    layer, memory = make_stack(value_dim=2)[0], tf.constant(rng.normal(size=(B, S, D_S)), "float32")

    output, self_scores, cross_scores, cache = layer(
        rng.normal(size=(B, 1, D)),
        cache=layer.init_cache(memory, LENGTH),
        cache_index=3,
        encoder_padding_mask=padding_mask(SOURCE_IDS),
        return_attention_scores=True,
    )

    assert output.shape == (B, 1, D)
    np.testing.assert_array_equal(
        np.asarray(self_scores) != 0, np.broadcast_to(np.arange(LENGTH) <= 3, (B, N, 1, LENGTH))
    )
    np.testing.assert_array_equal(
        np.asarray(cross_scores) != 0, np.broadcast_to((SOURCE_IDS != 0)[:, None, None, :], (B, N, 1, S))
    )
    assert [x.shape for x in cache["self"]] == [(B, N, LENGTH, D // N), (B, N, LENGTH, 2)]
    assert [x.shape for x in cache["cross"]] == [(B, N, S, D // N), (B, N, S, 2)]


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
def test_one_trace_serves_every_step(rng, make_stack, jit_compile):
    layer = make_stack()[0]
    x, memory = (tf.constant(rng.normal(size=shape), "float32") for shape in ((B, T, D), (B, S, D_S)))
    whole, cache = np.asarray(layer(x, memory)), layer.init_cache(memory, LENGTH)

    @tf.function(jit_compile=jit_compile)
    def step(piece, cache, index):
        return layer(piece, cache=cache, cache_index=index)

    for index in range(T):
        output, cache = step(x[:, index : index + 1], cache, tf.constant(index))
        np.testing.assert_allclose(output[:, 0], whole[:, index], atol=1e-5, err_msg=f"{index=}")
    assert step.experimental_get_tracing_count() == 1


# --- dropout, seeds, errors


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
def test_dropout_is_on_in_training_alone(rng, make_stack, name):
    layer, x, memory = make_stack(**{name: 0.5})[0], rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D_S))

    np.testing.assert_array_equal(layer(x, memory, training=False), layer(x, memory))
    assert np.abs(layer(x, memory, training=True) - layer(x, memory)).max() > 0.01


def test_with_one_seed_the_dropouts_of_the_sublayers_drop_differently(make_stack):
    layer, ones = make_stack(dropout=0.5, attention_dropout=0.5, seed=3)[0], np.ones((B, T, D))
    dropouts = [
        layer.self_attention.dropout_layer,
        layer.self_attention_residual.dropout_layer,
        layer.cross_attention.dropout_layer,
        layer.cross_attention_residual.dropout_layer,
        layer.feed_forward_residual.dropout_layer,
    ]

    patterns = {np.asarray(dropout(ones, training=True)).tobytes() for dropout in dropouts}

    assert len(patterns) == len(dropouts)


def test_with_one_initializer_object_the_two_attentions_start_different():
    layer = DecoderLayer(N, D_FF, kernel_initializer=keras.initializers.GlorotUniform())
    layer.build((B, T, D), (B, S, D))

    assert not np.array_equal(layer.self_attention.get_weights()[0], layer.cross_attention.get_weights()[0])


def test_a_cache_without_its_index_raises_and_the_other_way_round(rng, make_stack):
    layer, memory = make_stack()[0], tf.constant(rng.normal(size=(B, S, D_S)), "float32")
    with pytest.raises(ValueError, match="`cache` and `cache_index` go together"):
        layer(np.zeros((B, 1, D)), memory, cache=layer.init_cache(memory, LENGTH))
    with pytest.raises(ValueError, match="`cache` and `cache_index` go together"):
        layer(np.zeros((B, 1, D)), memory, cache_index=0)


def test_an_implicit_target_mask_beside_a_cache_raises(make_stack):
    layer, memory = make_stack()[0], tf.zeros((B, S, D_S))
    piece = keras.layers.Embedding(V, D, mask_zero=True)(TARGET_IDS[:, :1])
    with pytest.raises(ValueError, match="mask_zero=False"):
        layer(piece, memory, cache=layer.init_cache(memory, LENGTH), cache_index=0)


def test_a_missing_encoder_sequence_raises_and_is_named(make_stack):
    with pytest.raises(ValueError, match="`encoder_sequence`"):
        make_stack()[0](np.zeros((B, T, D)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"num_heads": 0}, "num_heads=0"), ({"d_ff": -1}, "d_ff=-1"), ({"drop": 0.1}, "drop")],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        DecoderLayer(**{"num_heads": N, "d_ff": D_FF, **arguments})


def test_a_width_that_the_heads_do_not_divide_raises():
    with pytest.raises(ValueError, match="d_model=13, num_heads=3"):
        DecoderLayer(N, D_FF).build((B, T, 13), (B, S, D_S))

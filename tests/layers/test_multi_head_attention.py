"""Multi-head attention: parity with Keras' layer, masks of both kinds, and step-by-step decoding with a cache."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from keras_transformer import MultiHeadAttention, look_ahead_mask, padding_mask

# Batch, queries, keys, heads, size of a key's and a value's head, widths of query, value and key.
B, T, S, N, H, H_V, D, D_V, D_K = 2, 5, 7, 3, 11, 4, 13, 8, 6

# In 16 bits a few roundings of numbers below 4.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "mixed_float16": 5e-3, "mixed_bfloat16": 4e-2}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # the harness trains from a generator
class TestHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            MultiHeadAttention,
            init_kwargs={"num_heads": N, "key_dim": H},
            input_shape={"query_shape": (B, T, D), "value_shape": (B, S, D_V)},
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=8,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=0,
            expected_num_losses=0,
            supports_masking=True,
            run_training_check=False,
        )

    def test_keras_own_harness_with_every_argument(self):
        self.run_layer_test(
            MultiHeadAttention,
            init_kwargs={
                "num_heads": N,
                "key_dim": H,
                "value_dim": H_V,
                "dropout": 0.1,
                "use_bias": False,
                "output_shape": 17,
                "kernel_initializer": "he_normal",
                "bias_initializer": "ones",
                "kernel_regularizer": "l2",
                "bias_regularizer": "l2",
                "kernel_constraint": "max_norm",
                "bias_constraint": "max_norm",
                "activity_regularizer": "l2",
                "seed": 3,
            },
            input_shape={"query_shape": (B, T, D), "value_shape": (B, S, D_V), "key_shape": (B, S, D_K)},
            expected_output_shape=(B, T, 17),
            expected_num_trainable_weights=4,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=1,
            expected_num_losses=5,  # four kernels and the activity
            supports_masking=True,
            run_training_check=False,
        )

    def test_keras_own_harness_with_scores(self):
        self.run_layer_test(
            MultiHeadAttention,
            init_kwargs={"num_heads": N, "key_dim": H},
            input_shape={"query_shape": (B, T, D), "value_shape": (B, S, D_V)},
            call_kwargs={"return_attention_scores": True},
            expected_output_shape=((B, T, D), (B, N, T, S)),
            supports_masking=True,
            run_training_check=False,
        )


def random_mask(*shape):
    """Every query sees at least key 3."""
    mask = np.random.default_rng(5).random(shape) < 0.5
    mask[..., 3] = True
    return mask


PARITY = {
    "self-attention": ({}, {"value_width": None}, {}),
    "cross-attention": ({}, {}, {}),
    "a key of its own": ({}, {"key_width": D_K}, {}),
    "value_dim": ({"value_dim": H_V}, {}, {}),
    "no bias": ({"use_bias": False}, {}, {}),
    "output_shape": ({"output_shape": 17, "value_dim": H_V}, {}, {}),
    "mask of rank 3": ({}, {}, {"attention_mask": random_mask(B, T, S)}),
    "mask of keys": ({}, {}, {"attention_mask": random_mask(B, 1, S)}),
    "mask with heads": ({}, {}, {"attention_mask": random_mask(B, N, T, S)}),
    "causal": ({}, {"value_width": None}, {"use_causal_mask": True}),
    "causal and mask": (
        {"value_dim": H_V},
        {"value_width": None},
        {"use_causal_mask": True, "attention_mask": np.arange(T)[None, None, :] != 1},  # every row still sees key 0
    ),
}


@pytest.mark.parametrize(("arguments", "inputs", "call"), PARITY.values(), ids=PARITY)
def test_outputs_scores_and_gradients_are_those_of_keras_layer(rng, randomize, arguments, inputs, call):
    query = rng.normal(size=(B, T, D))
    value = query if inputs.get("value_width", D_V) is None else rng.normal(size=(B, S, D_V))
    key = rng.normal(size=(B, S, inputs["key_width"])) if "key_width" in inputs else None
    theirs = keras.layers.MultiHeadAttention(N, H, dtype="float64", **arguments)
    ours = MultiHeadAttention(N, H, dtype="float64", **arguments)
    theirs.build(query.shape, value.shape, value.shape if key is None else key.shape)
    ours.build(query.shape, value.shape, value.shape if key is None else key.shape)
    ours.set_weights(randomize(theirs).get_weights())

    def run(layer):
        tensors = [tf.constant(x) for x in (query, value, key) if x is not None]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output, scores = layer(*tensors, return_attention_scores=True, **call)
            loss = tf.reduce_sum(tf.sin(output))
        return output, scores, tape.gradient(loss, [*tensors, *layer.trainable_variables])

    their_output, their_scores, their_gradients = run(theirs)
    our_output, our_scores, our_gradients = run(ours)

    # Float64, but Keras rounds 1 / sqrt(key_dim) to float32.
    assert our_output.shape == (B, T, arguments.get("output_shape", D))
    np.testing.assert_allclose(our_output, their_output, atol=1e-6)
    np.testing.assert_allclose(our_scores, their_scores, atol=1e-7)
    for our_gradient, their_gradient in zip(our_gradients, their_gradients, strict=True):
        np.testing.assert_allclose(our_gradient, their_gradient, atol=1e-6)


def test_weights_have_the_names_and_shapes_of_keras_layer():
    ours, theirs = (
        cls(N, H, value_dim=H_V, name="mha") for cls in (MultiHeadAttention, keras.layers.MultiHeadAttention)
    )
    for layer in (ours, theirs):
        layer.build((B, T, D), (B, S, D_V), (B, S, D_K))

    assert [(w.path, w.shape) for w in ours.weights] == [(w.path, w.shape) for w in theirs.weights]


def test_equals_the_papers_formula(rng, randomize, reference):
    layer = MultiHeadAttention(N, H, value_dim=H_V)
    layer.build((B, T, D), (B, S, D_V))
    randomize(layer)
    query, value, mask = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D_V)), random_mask(B, T, S)

    output, scores = layer(query, value, attention_mask=mask, return_attention_scores=True)

    expected_output, expected_scores = reference.multi_head_attention(layer.get_weights(), query, value, mask)
    np.testing.assert_allclose(output, expected_output, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)


# --- masks


@pytest.fixture
def attention(randomize):
    """Self-attention of width D, every weight random."""
    layer = MultiHeadAttention(N, H)
    layer.build((B, T, D))
    return randomize(layer)


def test_an_explicit_mask_that_hides_key_0_and_the_causal_mask_hold_together(attention, rng):
    # Query 0 sees nothing at all, and gets zeros.
    sequence = rng.normal(size=(B, T, D))
    not_key_0 = np.arange(T)[None, None, :] != 0

    _, scores = attention(
        sequence, sequence, attention_mask=not_key_0, use_causal_mask=True, return_attention_scores=True
    )

    allowed = np.array(
        [
            [False, False, False, False, False],
            [False, True, False, False, False],
            [False, True, True, False, False],
            [False, True, True, True, False],
            [False, True, True, True, True],
        ]
    )
    np.testing.assert_array_equal(np.asarray(scores) != 0, np.broadcast_to(allowed, (B, N, T, T)))
    np.testing.assert_allclose(np.asarray(scores).sum(axis=-1)[:, :, 1:], np.ones((B, N, T - 1)), rtol=1e-6)


def test_the_causal_mask_of_a_length_known_only_in_the_graph(attention, rng):
    sequence = tf.constant(rng.normal(size=(B, T, D)), "float32")
    unknown, known = tf.TensorSpec((B, None, D)), tf.TensorSpec((B, T, D))

    @tf.function(input_signature=[unknown, known])
    def attend(query, value):
        return attention(query, value, use_causal_mask=True)

    np.testing.assert_allclose(
        attend(sequence, sequence), attention(sequence, sequence, use_causal_mask=True), atol=1e-5
    )


def test_a_query_that_sees_nothing_gives_the_output_bias(attention, rng):
    sequence = rng.normal(size=(B, T, D))

    output = attention(sequence, sequence, attention_mask=np.zeros((B, 1, T), bool))

    np.testing.assert_allclose(output, np.broadcast_to(attention.get_weights()[-1], (B, T, D)), atol=1e-6)


SOURCE_IDS = np.array([[5, 3, 8, 1, 0, 0, 0], [2, 9, 4, 4, 7, 1, 0]])


@pytest.fixture
def masked_source():
    """A source whose implicit mask Keras' own embedding has made."""
    return keras.layers.Embedding(11, D, mask_zero=True)(SOURCE_IDS)


def test_weights_are_0_on_padded_keys_and_sum_to_one(attention, masked_source, rng):
    _, scores = attention(rng.normal(size=(B, T, D)), masked_source, return_attention_scores=True)

    scores = np.asarray(scores)
    real = np.broadcast_to((SOURCE_IDS != 0)[:, None, None, :], scores.shape)
    assert (scores[~real] == 0).all()
    assert (scores[real] > 0).all()
    np.testing.assert_allclose(scores.sum(axis=-1), np.ones((B, N, T)), rtol=1e-6)


def test_an_implicit_mask_of_the_value_hides_what_the_explicit_mask_hides(attention, masked_source, rng):
    query, source = rng.normal(size=(B, T, D)), np.asarray(masked_source)
    expected = attention(query, source, attention_mask=padding_mask(SOURCE_IDS))

    assert np.abs(attention(query, source) - expected).max() > 0.01  # the mask matters
    np.testing.assert_array_equal(attention(query, masked_source), expected)
    np.testing.assert_array_equal(attention(query, source, value_mask=SOURCE_IDS != 0), expected)
    np.testing.assert_array_equal(attention(query, source, source, key_mask=SOURCE_IDS != 0), expected)
    np.testing.assert_array_equal(attention(query, source, masked_source), expected)


def test_the_second_layer_of_a_stack_hides_padding_too(masked_source, rng):
    # Keras' own layer takes the implicit mask off the source, so that a second one attends to padding.
    first, second = MultiHeadAttention(N, H), MultiHeadAttention(N, H)

    read = first(rng.normal(size=(B, T, D)), masked_source)
    _, scores = second(read, masked_source, return_attention_scores=True)

    np.testing.assert_array_equal(
        np.asarray(scores) != 0, np.broadcast_to((SOURCE_IDS != 0)[:, None, None, :], (B, N, T, 7))
    )


def test_implicit_and_explicit_masks_hold_together(attention, masked_source, rng):
    query, explicit = rng.normal(size=(B, T, D)), random_mask(B, T, S)

    _, scores = attention(query, masked_source, attention_mask=explicit, return_attention_scores=True)

    both = explicit & (SOURCE_IDS != 0)[:, None, :]
    np.testing.assert_array_equal(np.asarray(scores) != 0, np.broadcast_to(both[:, None], (B, N, T, S)))


def test_an_implicit_mask_and_the_causal_mask_hold_together_in_self_attention(attention, masked_source):
    _, scores = attention(masked_source, masked_source, use_causal_mask=True, return_attention_scores=True)

    both = np.tril(np.ones((S, S), bool)) & (SOURCE_IDS != 0)[:, None, :]
    np.testing.assert_array_equal(np.asarray(scores) != 0, np.broadcast_to(both[:, None], (B, N, S, S)))


def test_a_querys_mask_hides_nothing(attention, masked_source, rng):
    memory = rng.normal(size=(B, 3, D))
    expected = attention(np.asarray(masked_source), memory)

    np.testing.assert_array_equal(attention(masked_source, memory), expected)
    np.testing.assert_array_equal(
        attention(np.asarray(masked_source), memory, query_mask=np.zeros((B, S), bool)), expected
    )


# --- dropout and initial values


def test_dropout_drops_weights_in_training_alone_and_the_scores_are_those_before_it(rng):
    layer = MultiHeadAttention(N, H, dropout=0.5, seed=3)
    query, value = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
    without, scores = layer(query, value, return_attention_scores=True)
    trained, trained_scores = layer(query, value, return_attention_scores=True, training=True)

    np.testing.assert_array_equal(layer(query, value, training=False), without)
    assert np.abs(trained - without).max() > 0.01
    np.testing.assert_array_equal(trained_scores, scores)


def test_the_projections_of_one_initializer_object_start_different():
    layer = MultiHeadAttention(N, H, kernel_initializer=keras.initializers.GlorotUniform())
    layer.build((B, T, D))
    query_kernel, _, key_kernel, _, value_kernel, *_ = layer.get_weights()

    assert not np.array_equal(query_kernel, key_kernel)
    assert not np.array_equal(query_kernel, value_kernel)
    assert not np.array_equal(key_kernel, value_kernel)


# --- cache

LENGTH = 8  # the longest target that a cache holds, longer than T


def empty_cache(layer):
    shape = (B, layer.num_heads, LENGTH)
    return (
        tf.zeros((*shape, layer.key_dim), layer.compute_dtype),
        tf.zeros((*shape, layer.value_dim), layer.compute_dtype),
    )


def decode(layer, sequence, chunks, **call):
    """Feeds `sequence` in pieces of the given lengths and joins what comes out."""
    cache, index, outputs = empty_cache(layer), 0, []
    for steps in chunks:
        piece = sequence[:, index : index + steps]
        output, cache = layer(piece, piece, cache=cache, cache_index=index, **call)
        outputs.append(np.asarray(output, "float64"))
        index += steps
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3), (1, 4), (5,)], ids=str)
def test_step_by_step_equals_the_whole_causal_pass(rng, randomize, policy, chunks):
    layer = MultiHeadAttention(N, H, value_dim=H_V, dtype=policy)
    layer.build((B, T, D))
    randomize(layer)
    sequence = tf.cast(rng.normal(size=(B, T, D)), layer.compute_dtype)
    whole = np.asarray(layer(sequence, sequence, use_causal_mask=True), "float64")

    np.testing.assert_allclose(decode(layer, sequence, chunks), whole, atol=TOLERANCE[policy])


def test_a_cached_step_sees_what_the_explicit_mask_leaves_too(attention, rng):
    sequence, hidden = rng.normal(size=(B, T, D)), np.arange(LENGTH)[None, None, :] != 1
    whole = attention(sequence, sequence, attention_mask=hidden[:, :, :T], use_causal_mask=True)

    np.testing.assert_allclose(decode(attention, sequence, [1] * T, attention_mask=hidden), whole, atol=1e-5)


def test_the_scores_of_a_cached_step_cover_the_cache_and_are_0_past_the_step(attention, rng):
    piece = rng.normal(size=(B, 1, D))

    _, scores, (key, value) = attention(
        piece, piece, cache=empty_cache(attention), cache_index=3, return_attention_scores=True
    )

    assert scores.shape == (B, N, 1, LENGTH)
    assert (np.asarray(scores)[..., :4] > 0).all()
    assert (np.asarray(scores)[..., 4:] == 0).all()
    for cached in (key, value):  # written at position 3 alone
        np.testing.assert_array_equal(np.abs(cached).max(axis=(0, 1, 3)) > 0, np.arange(LENGTH) == 3)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
def test_one_trace_serves_every_step(attention, rng, jit_compile):
    @tf.function(jit_compile=jit_compile)
    def step(piece, cache, index):
        return attention(piece, piece, cache=cache, cache_index=index)

    sequence = tf.constant(rng.normal(size=(B, T, D)), "float32")
    whole = np.asarray(attention(sequence, sequence, use_causal_mask=True))
    cache = empty_cache(attention)
    for index in range(T):
        output, cache = step(sequence[:, index : index + 1], cache, tf.constant(index))
        np.testing.assert_allclose(output[:, 0], whole[:, index], atol=1e-5, err_msg=f"{index=}")

    assert step.experimental_get_tracing_count() == 1


def test_cross_attention_may_project_its_source_once(attention, rng):
    query, source = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
    mask = padding_mask(SOURCE_IDS)
    expected = attention(query, source, attention_mask=mask)

    cache = attention.project_key_value(tf.constant(source, "float32"))
    for t in range(T):
        output, cache_after = attention(query[:, t : t + 1], attention_mask=mask, cache=cache)
        np.testing.assert_allclose(output[:, 0], expected[:, t], atol=1e-5)
        assert all(after is before for after, before in zip(cache_after, cache, strict=True))


# --- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "num_heads=0"),
        ({"num_heads": 2.0}, "num_heads=2.0"),
        ({"key_dim": -1}, "key_dim=-1"),
        ({"value_dim": 0}, "value_dim=0"),
        ({"output_shape": 0}, "output_shape=0"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"use_biases": False}, "use_biases"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"num_heads": N, "key_dim": H, **arguments})


def test_a_misspelt_call_argument_raises(attention):
    with pytest.raises(TypeError, match="use_casual_mask"):
        attention(np.zeros((B, T, D)), np.zeros((B, T, D)), use_casual_mask=True)


def test_an_input_of_another_rank_raises():
    with pytest.raises(ValueError, match=r"`value` must have rank 3.*shape=\(2, 13\)"):
        MultiHeadAttention(N, H)(np.zeros((B, T, D)), np.zeros((B, D)))


def test_a_missing_value_raises(attention):
    with pytest.raises(ValueError, match="`value` may be left out only where `cache` is given"):
        attention(np.zeros((B, T, D)))


def test_the_causal_mask_with_other_lengths_raises(attention):
    with pytest.raises(ValueError, match=r"`use_causal_mask`.*query=\(2, 5, 13\), key=\(2, 7, 13\)"):
        attention(np.zeros((B, T, D)), np.zeros((B, S, D)), use_causal_mask=True)


def test_the_causal_mask_with_a_cache_raises(attention):
    # Its triangle starts top left: one query against five cached keys would see key 0 alone.
    piece = np.zeros((B, 1, D))
    with pytest.raises(ValueError, match=r"`use_causal_mask`.*`cache_index`"):
        attention(piece, piece, cache=empty_cache(attention), cache_index=4, use_causal_mask=True)


def test_a_cache_index_without_a_cache_raises(attention):
    with pytest.raises(ValueError, match=r"`cache_index`.*`cache`"):
        attention(np.zeros((B, 1, D)), np.zeros((B, 1, D)), cache_index=4)


def test_an_implicit_mask_of_new_keys_beside_a_cache_raises(attention, masked_source):
    piece = masked_source[:, :1]
    piece._keras_mask = SOURCE_IDS[:, :1] != 0
    with pytest.raises(ValueError, match="mask_zero=False"):
        attention(piece, piece, cache=empty_cache(attention), cache_index=0)


@pytest.mark.parametrize("index", [-1, LENGTH])
def test_a_step_outside_the_cache_raises(attention, index):
    piece = np.zeros((B, 1, D))
    with pytest.raises(ValueError, match=f"index={index}.*length 8"):
        attention(piece, piece, cache=empty_cache(attention), cache_index=index)


def test_masks_of_a_wrong_kind_raise(attention):
    sequence = np.zeros((B, T, D))
    with pytest.raises(TypeError, match="must be boolean"):
        attention(sequence, sequence, attention_mask=np.ones((B, T, T), "float32"))
    with pytest.raises(ValueError, match=r"padding_mask\(token_ids\)"):
        attention(sequence, sequence, attention_mask=np.ones((B, T), bool))
    with pytest.raises(ValueError, match="mask"):
        attention(sequence, sequence, attention_mask=look_ahead_mask(S))

"""A search's step gives each hypothesis the logits of its own history, in whose-ever places that is kept."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.decoding import beam_search
from keras_transformer.decoding.generate import sample_ids, search_ids
from keras_transformer.models.decoding_step import DecodingStep
from keras_transformer.models.hypotheses_cache import HypothesesCache
from keras_transformer.serving.in_place import InPlaceCache

# What rounding alone may move a logit of size 3 to 5 in two orders of summation.
TOLERANCES = {"float32": 1e-5, "float64": 1e-5, "mixed_float16": 0.02, "mixed_bfloat16": 0.15}
SOURCES, BEAMS, LENGTH = 3, 3, 36  # a cache in place is swept after 16 steps, and again after 32
CACHES = {"XLA": HypothesesCache, "plain graph": InPlaceCache, "eager": HypothesesCache, "eager in place": InPlaceCache}


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def encoder_token_ids(make_batch):
    return make_batch((7, 4, 1), (1, 1, 1))["encoder_token_ids"]


def random_search(seed, beams=BEAMS, vocabulary_size=29):
    """Tokens and parents of every step, `(T, B * K)`, and the hypotheses' histories then, `(T, B * K, T)`."""
    rng = np.random.default_rng(seed)
    rows = SOURCES * beams
    tokens = rng.integers(1, vocabulary_size, (LENGTH, rows), "int32")
    first = np.repeat(np.arange(SOURCES) * beams, beams)
    parents = (first + rng.integers(0, beams, (LENGTH, rows))).astype("int32")
    history, histories = np.zeros((rows, LENGTH), "int32"), []
    for index in range(LENGTH):
        history[:, index] = tokens[index]
        histories.append(history.copy())
        history = history[parents[index]]
    return tokens, parents, np.stack(histories)


def run_steps(model, encoder_token_ids, tokens, parents, how, beams=BEAMS, coverage=False):
    """Logits, and the coverage if asked for, of every step: `(T, B * K, V)`, `(T, B * K, S)`."""
    vocabulary_size, source_length = model.target_embedding.embeddings.shape[0], encoder_token_ids.shape[1]

    def search(encoder_token_ids, tokens, parents):
        encoded = model.encode(encoder_token_ids, training=False)
        step = DecodingStep(model, *encoded, LENGTH, beams, cache_class=CACHES[how], track_coverage=coverage)

        def body(index, state, all_logits, seen):
            logits, state = step(tokens[index], index, state)
            all_logits = ops.slice_update(all_logits, (index, 0, 0), logits[None])
            if coverage:
                seen = ops.slice_update(seen, (index, 0, 0), step.coverage(state)[None])
            return index + 1, step.reorder(state, parents[index]), all_logits, seen

        rows, dtype = SOURCES * beams, "float64" if model.dtype_policy.name == "float64" else "float32"
        start = (
            ops.convert_to_tensor(0),
            step.init_state(),
            ops.zeros((LENGTH, rows, vocabulary_size), dtype),
            ops.zeros((LENGTH, rows, source_length), "float32"),
        )
        return ops.while_loop(lambda index, *_: index < LENGTH, body, start)[2:]

    if not how.startswith("eager"):
        search = tf.function(search, jit_compile=how == "XLA", autograph=False)
    return [numpy(each) for each in search(*map(tf.constant, (encoder_token_ids, tokens, parents)))]


def full_pass(model, encoder_token_ids, histories, **options):
    """`(T, B * K, T, ...)`: what the model itself makes of every step's histories."""
    rows = histories.shape[1]
    sources = np.tile(np.repeat(encoder_token_ids, rows // SOURCES, axis=0), (LENGTH, 1))
    batch = {"encoder_token_ids": sources, "decoder_token_ids": histories.reshape(-1, LENGTH)}
    return model(batch, training=False, **options)


def assert_logits(logits, model, encoder_token_ids, histories, tolerance):
    expected = numpy(full_pass(model, encoder_token_ids, histories)).reshape(*histories.shape, -1)
    now = np.arange(LENGTH)
    assert np.abs(logits - expected[now, :, now]).max() < tolerance


@pytest.mark.parametrize("how", ["XLA", "plain graph"])
@pytest.mark.parametrize(
    ("policy", "normalize_first"),
    [
        *[("float32", False), ("float32", True), ("float64", True)],
        *[("mixed_float16", False), ("mixed_bfloat16", False), ("mixed_bfloat16", True)],
    ],
)
def test_steps_of_reordered_hypotheses_are_the_full_pass(make_model, encoder_token_ids, policy, normalize_first, how):
    model = make_model(dtype=policy, normalize_first=normalize_first)
    tokens, parents, histories = random_search(seed=1)
    logits, _ = run_steps(model, encoder_token_ids, tokens, parents, how)
    assert_logits(logits, model, encoder_token_ids, histories, TOLERANCES[policy])


@pytest.mark.parametrize("how", CACHES)
@pytest.mark.parametrize("beams", [1, 4])
def test_other_sizes(make_model, encoder_token_ids, how, beams):
    model = make_model(key_dim=3, value_dim=5, num_decoder_layers=3, share_embeddings=False, target_vocabulary_size=31)
    tokens, parents, histories = random_search(2, beams, vocabulary_size=31)
    logits, _ = run_steps(model, encoder_token_ids, tokens, parents, how, beams)
    assert_logits(logits, model, encoder_token_ids, histories, 1e-5)


@pytest.mark.parametrize("how", ["XLA", "plain graph"])
def test_the_coverage_is_the_last_layers_mean_attention(make_model, encoder_token_ids, how):
    model = make_model(num_heads=4, key_dim=3)
    tokens, parents, histories = random_search(seed=3)
    _, coverage = run_steps(model, encoder_token_ids, tokens, parents, how, coverage=True)
    _, scores = full_pass(model, encoder_token_ids, histories, return_attention_scores=True)
    attention = numpy(scores["cross"][-1]).mean(axis=1)  # (T * B * K, T, S)
    so_far = attention.cumsum(axis=1).reshape(*histories.shape, -1)
    padding = np.repeat(encoder_token_ids == 0, BEAMS, axis=0)
    for index in range(LENGTH):
        expected = np.where(padding, 1.0, so_far[index, :, index])
        np.testing.assert_allclose(coverage[index], expected, atol=1e-5)
        # A source token's share is counted once for each token written.
        np.testing.assert_allclose(np.where(padding, 0.0, coverage[index]).sum(-1), index + 1, rtol=1e-5)


@pytest.mark.parametrize("how", CACHES)
def test_every_cache_has_memory_of_its_own(make_model, encoder_token_ids, how):
    """Equal zeros were one tensor once, to TensorFlow's optimizer, and written to by all layers."""
    model = make_model(num_decoder_layers=3)  # six caches of one shape

    def write(encoder_token_ids):
        encoded = model.encode(encoder_token_ids, training=False)
        step = DecodingStep(model, *encoded, LENGTH, BEAMS, cache_class=CACHES[how])

        def body(index, caches, past, place):
            update = ops.ones((SOURCES * BEAMS, 16))
            caches, past, place = step.cache.make_room(caches, past, place)
            caches = [step.cache.write(old, update * (1 + i), place) for i, old in enumerate(caches)]
            return index + 1, caches, step.cache.own(past, place), place + BEAMS

        state = step.init_state()
        start = (ops.convert_to_tensor(0), keras.tree.flatten(state["layers"]), state["past"], state["place"])
        return ops.while_loop(lambda index, *_: index < LENGTH - 1, body, start)[1]

    if not how.startswith("eager"):
        write = tf.function(write, jit_compile=how == "XLA", autograph=False)
    caches = write(tf.constant(encoder_token_ids))
    assert len(caches) == 6
    for number, cache in enumerate(caches):
        written = numpy(cache)[:, :, : (LENGTH - 1) * BEAMS]
        assert written.shape[2] == (LENGTH - 1) * BEAMS
        assert np.all(written == 1 + number)


def test_places_that_nobody_looks_back_at_are_swept_out(make_model, encoder_token_ids):
    """All hypotheses go on from the first one at every step: of each step one place is kept, and not one each."""
    model = make_model()
    step = DecodingStep(model, *model.encode(encoder_token_ids), LENGTH, BEAMS, cache_class=InPlaceCache)
    caches, past, place = step.init_state()["layers"], step.cache.no_past(), tf.constant(0)
    parents = ops.repeat(ops.arange(SOURCES) * BEAMS, BEAMS)
    places = []
    for _ in range(LENGTH):
        caches, past, place = step.cache.make_room(caches, past, place)
        places.append({cache.shape[2] for cache in keras.tree.flatten(caches)} | {past.shape[2]})
        past = step.cache.reorder(step.cache.own(past, place), parents)
        place += BEAMS
    room = 16 * BEAMS
    assert places == [{room}] * 16 + [{16 + room}] * 16 + [{32 + room}] * (LENGTH - 32)
    assert np.all(numpy(past).sum(axis=2) == LENGTH)


def log_p(model, encoder_token_ids, ids):
    """log p of every row of ids, their ends included, by one full pass."""
    inputs = np.concatenate([np.full((len(ids), 1), 2), ids[:, :-1]], axis=1)
    logits = numpy(model({"encoder_token_ids": encoder_token_ids, "decoder_token_ids": inputs})).astype("float64")
    every = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return (np.take_along_axis(every, ids[..., None], axis=2)[..., 0] * (ids != 0)).sum(axis=1)


@pytest.mark.parametrize("how", ["XLA", "plain graph"])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_search_by_places_is_the_search_that_moves_the_cache(make_model, encoder_token_ids, num_beams, how):
    model, max_lengths = make_model(), np.int32([12, 5, 9])
    expected, expected_scores = beam_search(
        model.step,
        model.init_state(*model.encode(encoder_token_ids), 12),
        max_lengths,
        12,
        num_beams=num_beams,
        num_hypotheses=num_beams,
    )
    compiled = tf.function(
        lambda ids: search_ids(
            model, ids, max_lengths, 12, num_beams, num_hypotheses=num_beams, cache_class=CACHES[how]
        ),
        jit_compile=how == "XLA",
        autograph=False,
    )
    ids, scores = compiled(tf.constant(encoder_token_ids))
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
    flat = numpy(ids).reshape(-1, 12)
    lengths = (flat != 0).sum(axis=1)
    full = log_p(model, np.repeat(encoder_token_ids, num_beams, axis=0), flat) / ((5 + lengths) / 6) ** 0.6
    np.testing.assert_allclose(numpy(scores).ravel(), full, atol=1e-4)


@pytest.mark.parametrize("how", ["XLA", "plain graph"])
def test_more_samples_do_not_change_the_first(make_model, encoder_token_ids, how):
    """Each is drawn by its own seed, and scored as the model scores it."""
    model, max_lengths = make_model(), np.int32([12, 5, 9])
    limits = {"min_lengths": np.int32([3, 3, 3]), "prefix_ids": np.int32([[5, 6], [0, 0], [7, 0]])}

    @tf.function(jit_compile=how == "XLA", autograph=False)
    def draw(ids, num_samples, seed):
        options = {"cache_class": CACHES[how], "temperature": 2.0, **limits}
        return sample_ids(model, ids, max_lengths, 12, num_samples, seed, **options)

    ids, scores = draw(tf.constant(encoder_token_ids), 3, tf.constant(11))
    for number in range(3):
        alone, alone_scores = draw(tf.constant(encoder_token_ids), 1, tf.constant(11 + number))
        np.testing.assert_array_equal(alone[:, 0], ids[:, number])
        np.testing.assert_allclose(alone_scores[:, 0], scores[:, number], atol=1e-4)
    assert ids[0, :, :2].numpy().tolist() == [[5, 6]] * 3
    assert np.all(numpy(ids)[2, :, 0] == 7)
    flat = numpy(ids).reshape(-1, 12)
    lengths = (flat != 0).sum(axis=1)
    assert lengths.min() >= 3
    full = log_p(model, np.repeat(encoder_token_ids, 3, axis=0), flat) / ((5 + lengths) / 6) ** 0.6
    np.testing.assert_allclose(numpy(scores).ravel(), full, atol=1e-4)


ON_JAX = """
import sys
import jax
import keras
import numpy as np
import keras_transformer as kt
from keras_transformer.decoding.generate import sample_ids, search_ids

assert keras.config.backend() == "jax"
assert "tensorflow" not in sys.modules
folder = sys.argv[1]
model = keras.saving.load_model(folder + "/model.keras")
ids, max_lengths = np.load(folder + "/ids.npy"), np.int32([12, 5, 9])
found = jax.jit(lambda ids: search_ids(model, ids, max_lengths, 12, 4, 0.2, num_hypotheses=4))(ids)
drawn = jax.jit(lambda ids: sample_ids(model, ids, max_lengths, 12, 2, seed=3, top_p=0.9))(ids)
np.savez(folder + "/out.npz", found=found[0], scores=found[1], drawn=drawn[0], drawn_scores=drawn[1])
"""


@pytest.mark.slow
def test_on_jax(make_model, encoder_token_ids, run_python, tmp_path):
    model, max_lengths = make_model(), np.int32([12, 5, 9])
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "ids.npy", encoder_token_ids)
    run_python(ON_JAX, tmp_path, KERAS_BACKEND="jax")
    ids, scores = search_ids(model, encoder_token_ids, max_lengths, 12, 4, 0.2, num_hypotheses=4)
    drawn, drawn_scores = sample_ids(model, encoder_token_ids, max_lengths, 12, 2, seed=3, top_p=0.9)
    with np.load(tmp_path / "out.npz") as jax:
        np.testing.assert_array_equal(jax["found"], ids)
        np.testing.assert_allclose(jax["scores"], scores, atol=1e-4)
        np.testing.assert_array_equal(jax["drawn"], drawn)
        np.testing.assert_allclose(jax["drawn_scores"], drawn_scores, atol=1e-4)

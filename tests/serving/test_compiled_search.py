"""A search compiled by XLA, prefixes and samples through the translator: the same, whatever they come with."""

import logging

import numpy as np
import pytest

import keras_transformer as kt

MODES = pytest.mark.parametrize("jit_compile", [False, True])


@pytest.fixture(scope="module")
def make(model, tokenizers):
    """`make(jit_compile, **settings)`: a translator, the same one for the same settings."""
    made = {}

    def make(jit_compile=False, **settings):
        key = (jit_compile, *settings.items())
        if key not in made:
            settings = {"num_beams": 3, "max_length": 40, **settings}
            made[key] = kt.Translator(model, *tokenizers, jit_compile=jit_compile, **settings)
        return made[key]

    return make


@pytest.fixture(scope="module")
def mixed(sources):
    """13 texts of 1 to 40 tokens, an empty one and a long one of 8 sentences among them: more than 20 to search."""
    long = "\n".join(sources[:8])
    return ["", long, *(" ".join(sources[index * 31 % 240].split()[: 1 + index % 5]) for index in range(11))]


def texts_of(rows):
    return [[hypothesis.text for hypothesis in row] for row in rows]


def scores_of(rows):
    return [[hypothesis.score for hypothesis in row] for row in rows]


def assert_same(left, right):
    assert texts_of(left) == texts_of(right)
    np.testing.assert_allclose(scores_of(left), scores_of(right), atol=1e-4)
    assert [row[0].truncated for row in left] == [row[0].truncated for row in right]


@pytest.mark.parametrize("settings", [{}, {"num_beams": 1}, {"coverage_penalty": 0.2, "no_repeat_ngram_size": 2}])
def test_xla_gives_the_plain_searchs_texts(make, mixed, settings):
    number = min(3, settings.get("num_beams", 3))
    plain = make(**settings).translate(mixed, num_hypotheses=number, batch_size=8)
    assert_same(make(True, **settings).translate(mixed, num_hypotheses=number, batch_size=8), plain)


def test_compilations_are_few_and_logged(model, tokenizers, sources, caplog):
    """Sentences of every length up to 40 tokens, 1 to 8 at once: a few shapes, each compiled and said to be once."""
    translator = kt.Translator(model, *tokenizers, num_beams=1, max_length=40, jit_compile=True)
    words = " ".join(sources[:10]).split()
    texts = [" ".join(words[:count]) for count in range(1, 30)]
    lengths = {len(row) + 1 for row in tokenizers[0].tokenize(texts).to_list() if len(row) < 40}
    assert len(lengths) > 15
    with caplog.at_level(logging.INFO, logger="keras_transformer"):
        for batch_size in (7, 8, 5):
            translator.translate(texts, batch_size=batch_size)
        for text in texts[::3]:
            translator([text])
        compiled = [record.getMessage() for record in caplog.records if "XLA compiled" in record.getMessage()]
        caplog.clear()
        translator.translate(texts, batch_size=6)
        assert not caplog.records
    shapes = {tuple(int(word) for word in message.split() if word.isdigit())[:2] for message in compiled}
    assert len(shapes) == len(compiled)
    assert {rows for rows, _ in shapes} <= {1, 2, 4, 8}
    assert {length for _, length in shapes} <= {8, 16, 24, 32, 48}
    assert len(shapes) <= 12
    (search,) = (x for x in translator._in_batches._functions.values() if hasattr(x, "shapes"))
    assert search.search.experimental_get_tracing_count() == len(shapes)


@MODES
def test_what_else_is_in_the_batch_does_not_matter(make, mixed, jit_compile):
    translator = make(jit_compile)
    together = translator.translate(mixed, batch_size=8)
    order = np.random.default_rng(1).permutation(len(mixed))
    shuffled = translator.translate([mixed[index] for index in order], batch_size=7)
    assert_same(shuffled, [together[index] for index in order])
    assert_same([translator.translate([text])[0] for text in mixed[:5]], together[:5])


@MODES
@pytest.mark.parametrize("num_beams", [1, 3])
def test_prefixes(make, jit_compile, num_beams, tokenizers):
    """The translation begins with it and goes on; "" changes nothing; each belongs to its own text."""
    translator = make(jit_compile, num_beams=num_beams)
    texts = ["o gato dorme", "um livro é muito bom", "este cão não é meu", "", "o gato dorme"]
    prefixes = ["the dog", "", "that boy is", "", ""]
    found = translator.translate(texts, prefixes=prefixes)
    plain = translator.translate(texts)
    assert [row[0].text.startswith(prefix) for row, prefix in zip(found, prefixes, strict=True)] == [True] * 5
    assert found[0][0].text == "the dog sleeps"
    assert found[2][0].text not in ("that boy is", plain[2][0].text)
    assert_same([found[1], found[3], found[4]], [plain[1], plain[3], plain[4]])
    alone = [translator.translate([t], prefixes=[p])[0] for t, p in zip(texts, prefixes, strict=True)]
    assert_same(alone, found)
    # Its score is the model's own, forced or not.
    for text, (hypothesis,) in zip(texts[:3], found[:3], strict=True):
        if tokenizers[1].detokenize(tokenizers[1].tokenize([hypothesis.text]))[0] == hypothesis.text:
            (log_p,), (length,) = translator.score([text], [hypothesis.text])
            assert hypothesis.score == pytest.approx(log_p / ((5 + length) / 6) ** 0.6, abs=1e-3)


@MODES
def test_prefixes_must_be_as_many(make, jit_compile):
    translator = make(jit_compile)
    with pytest.raises(ValueError, match=r"`prefixes` must be as many as `texts`. Received: 1 prefixes, 2 texts"):
        translator.translate(["o gato", "um cão"], prefixes=["the"])
    with pytest.raises(TypeError, match="`prefixes` must be a list of strings"):
        translator.translate(["o gato"], prefixes="t")
    assert translator.translate([], prefixes=[]) == []


def test_the_prefixes_length_compiles_little(model, tokenizers):
    """Fewer shapes than lengths."""
    translator = kt.Translator(model, *tokenizers, num_beams=1, max_length=16, jit_compile=True)
    words = ["the", "cat", "is", "very", "good", "the"]
    prefixes = [" ".join(words[: count + 1]) for count in range(6)]
    lengths = {len(row) for row in tokenizers[1].tokenize(prefixes).to_list()}
    for prefix in prefixes:
        translator.translate(["o gato é muito bom"], prefixes=[prefix])
    (search,) = (x for x in translator._in_batches._functions.values() if hasattr(x, "shapes"))
    assert len(search.shapes) <= len(lengths) // 2


@MODES
def test_samples(make, mixed, jit_compile):
    """A function of the text, the seed and the sample's number."""
    translator = make(jit_compile)
    mixed = mixed[:8]
    options = {"num_samples": 3, "temperature": 1.5, "top_k": 20, "top_p": 0.95, "seed": 4}
    found = translator.sample(mixed, batch_size=8, **options)
    assert [len(row) for row in found] == [3] * len(mixed)
    assert texts_of(found[:1]) == [["", "", ""]]
    assert sum(len(set(row)) > 1 for row in texts_of(found)) > len(mixed) // 2
    assert_same(translator.sample(mixed[::-1], batch_size=7, **options)[::-1], found)
    assert_same(translator.sample(mixed[4:6], **options), found[4:6])
    assert_same(translator.sample(mixed, **{**options, "num_samples": 1}), [row[:1] for row in found])
    another = translator.sample(mixed, **{**options, "seed": 400})
    assert sum(left != right for left, right in zip(texts_of(another), texts_of(found), strict=True)) > len(mixed) // 2


def test_xla_draws_the_plain_graphs_samples(make, mixed):
    options = {"num_samples": 2, "temperature": 0.9, "seed": 7}
    assert_same(make(True).sample(mixed, **options), make().sample(mixed, **options))


def test_a_cold_sample_is_the_greedy_translation(make, mixed):
    cold = make().sample(mixed, temperature=1e-3, top_k=3)
    assert_same(cold, make(num_beams=1).translate(mixed))


@MODES
def test_a_new_seed_traces_nothing_anew(model, tokenizers, jit_compile):
    translator = kt.Translator(model, *tokenizers, max_length=16, jit_compile=jit_compile)
    for seed in range(3):
        translator.sample(["o gato dorme"], seed=seed)
    searches = [key for key in translator._in_batches._functions if key[0] == "sample"]
    assert len(searches) == 1


@MODES
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "`num_samples` must be a positive integer. Received: num_samples=0"),
        ({"temperature": 0.0}, "`temperature` must be a number above 0. Received: temperature=0.0"),
        ({"top_k": 0}, "`top_k` must be a positive integer. Received: top_k=0"),
        ({"top_p": 1.5}, "`top_p` must be above 0 and at most 1. Received: top_p=1.5"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer. Received: batch_size=0"),
    ],
)
def test_impossible_samples_are_refused(make, jit_compile, options, message):
    with pytest.raises(ValueError, match=message):
        make(jit_compile).sample(["o gato"], **options)
    with pytest.raises(TypeError, match="`texts` must be a list of strings"):
        make(jit_compile).sample("o gato")

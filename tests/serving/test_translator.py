"""From text to text: a function of the sentence alone, whatever it comes with."""

import itertools
import os
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.serving import batches


def test_it_translates_what_it_has_learned(translator, greedy_translator, pairs):
    portuguese, english = zip(*pairs, strict=True)
    assert translator(portuguese) == list(english)
    assert greedy_translator(portuguese[::5]) == list(english[::5])


@pytest.mark.parametrize("batch_size", [7, 64])
@pytest.mark.parametrize("name", ["translator", "greedy_translator"])
def test_a_sentence_gets_alone_what_it_gets_in_a_batch(request, texts, name, batch_size):
    translator = request.getfixturevalue(name)
    alone = translator.translate(texts, batch_size=1)
    shuffled = np.random.default_rng(1).permutation(len(texts))
    in_batches = translator.translate(texts, batch_size=batch_size)
    in_another_order = translator.translate([texts[index] for index in shuffled], batch_size=batch_size)
    # `translate` sorts by length; the graph itself gets them as they come.
    unsorted = translator.translate_batch(tf.constant(texts))
    assert [row[0].text for row in in_batches] == [row[0].text for row in alone]
    assert [row[0].text for row in in_another_order] == [alone[index][0].text for index in shuffled]
    assert [text.decode() for text in unsorted["translation"][:, 0].numpy()] == [row[0].text for row in alone]
    expected = np.array([row[0].score for row in alone])
    np.testing.assert_allclose([row[0].score for row in in_batches], expected, atol=1e-4)
    np.testing.assert_allclose([row[0].score for row in in_another_order], expected[shuffled], atol=1e-4)
    np.testing.assert_allclose(unsorted["score"][:, 0], expected, atol=1e-4)


@pytest.mark.parametrize("name", ["translator", "greedy_translator"])
def test_an_empty_sentence_stays_empty(request, name):
    translator = request.getfixturevalue(name)
    assert translator([""]) == [""]
    assert translator(["", "o gato dorme", "   ", ""]) == ["", "the cat sleeps", "", ""]
    (hypothesis,) = translator.translate([""])[0]
    assert np.isfinite(hypothesis.score)
    assert not hypothesis.truncated


def test_batches_run_side_by_side_and_come_back_in_order(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    all_there = threading.Barrier(3)
    assert batches.side_by_side(lambda batch: (all_there.wait(timeout=30), batch)[1], [3, 1, 2]) == [3, 1, 2]
    assert batches.side_by_side(str, [7]) == ["7"]
    assert batches.side_by_side(str, []) == []
    with pytest.raises(ZeroDivisionError):
        batches.side_by_side(lambda batch: 1 // batch, [1, 0, 1])
    monkeypatch.setattr(batches, "MOST_SIDE_BY_SIDE", 2)
    with pytest.raises(threading.BrokenBarrierError):
        batches.side_by_side(lambda batch: all_there.wait(timeout=0.2), [3, 1, 2])


def test_no_sentences_give_none(translator):
    assert translator([]) == []
    assert translator.translate([], num_hypotheses=3) == []
    scores, lengths = translator.score([], [])
    assert scores.shape == lengths.shape == (0,)


def test_one_trace_serves_every_length_and_number(model, tokenizers, sources):
    translator = kt.Translator(model, *tokenizers, num_beams=2)
    many = [" ".join(sources[index : index + 1 + index % 9]) for index in range(200)]
    assert len({text.count(" ") for text in many}) > 15
    for start in range(0, 200, 40):
        assert len(translator.translate(many[start : start + 40], batch_size=7 + start // 40)) == 40
    functions = translator._in_batches._functions.values()
    assert len(functions) == 3  # text to ids, the search, ids to text
    assert {function.experimental_get_tracing_count() for function in functions} == {1}


def test_the_n_best_are_distinct_and_descending(model, tokenizers, texts, sources):
    translator = kt.Translator(model, *tokenizers, num_beams=5)
    for hypotheses in translator.translate(texts[1:41] + sources[:60], num_hypotheses=5):
        assert len({hypothesis.text for hypothesis in hypotheses}) == 5
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_the_first_of_n_is_the_best_alone(translator, texts):
    best = translator.translate(texts)
    four = translator.translate(texts, num_hypotheses=4)
    assert [row[0].text for row in four] == [row[0].text for row in best]
    np.testing.assert_allclose([row[0].score for row in four], [row[0].score for row in best], atol=1e-4)


def test_what_is_too_long_is_cut_and_said_to_be(translator, sources):
    long, short = " ".join(["gato"] * 2000), sources[0]
    (cut,), (whole,) = translator.translate([long, short])
    assert cut.truncated
    assert np.isfinite(cut.score)
    assert not whole.truncated
    assert whole.text == translator([short])[0]


def test_the_limit_counts_the_end_token(model, tokenizers):
    """`max_length` 12: eleven tokens and their end fit, twelve are cut to eleven."""
    translator = kt.Translator(model, *tokenizers, max_length=12)
    words = " gato" * 14
    lengths = {count: " ".join(words.split()[:count]) for count in (10, 11, 12, 13)}
    assert [len(row) for row in tokenizers[0].tokenize(list(lengths.values())).to_list()] == list(lengths)
    results = [row[0] for row in translator.translate(list(lengths.values()))]
    assert [result.truncated for result in results] == [False, False, True, True]
    assert results[2].text == results[3].text == results[1].text
    ids, truncated = translator.source_ids(tf.constant(list(lengths.values())))
    assert ids.shape == (4, 12)
    assert ids[:, 10:].numpy().tolist() == [[3, 0], [ids[1, 10], 3], [ids[1, 10], 3], [ids[1, 10], 3]]
    assert truncated.numpy().tolist() == [False, False, True, True]


@pytest.fixture(scope="module")
def endless(tokenizers):
    """An untrained model, greedy: it never comes to an end by itself."""
    keras.utils.set_random_seed(1)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = kt.Transformer(380, 360, share_embeddings=False, **sizes)
    return lambda **settings: kt.Translator(model, *tokenizers, num_beams=1, **settings)


@pytest.mark.parametrize(
    ("settings", "longer", "length"),
    [
        ({}, 50, None),  # section 6.1 of the paper
        ({"max_target_length": 9}, None, 9),
        ({"max_target_length": 200}, None, 200),
        ({"min_target_length": 120}, None, 120),
        ({"min_target_length": 7, "max_target_length": 7}, None, 7),
    ],
)
def test_how_long_a_translation_may_become(endless, sources, settings, longer, length):
    translator = endless(**settings)
    source_ids, _ = translator.source_ids(tf.constant(sources[:40:8]))
    ids, _ = translator.search(source_ids)
    lengths = np.count_nonzero(ids[:, 0], axis=1)
    source_lengths = np.count_nonzero(source_ids, axis=1)
    assert len(set(source_lengths)) > 1
    assert lengths.tolist() == list(source_lengths + longer if length is None else [length] * 5)
    assert np.all(np.take_along_axis(ids[:, 0].numpy(), lengths[:, None] - 1, axis=1) == 3)  # ended by the end token


@pytest.mark.parametrize("jit_compile", [False, True])
def test_settings_of_the_search_reach_it(endless, translator, sources, jit_compile):
    def distinct_pairs(**settings):
        translator = endless(max_target_length=12, jit_compile=jit_compile, **settings)
        ids = translator.target_tokenizer.tokenize(translator(["o gato"])).to_list()[0]
        return len(set(itertools.pairwise(ids)))

    assert distinct_pairs() < 5
    assert distinct_pairs(no_repeat_ngram_size=2) > 8  # of ten or so: the text is tokenized anew
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    covering = kt.Translator(translator.model, *tokenizers, coverage_penalty=5.0, jit_compile=jit_compile)
    without, with_it = (each.translate(sources[:3])[0][0] for each in (translator, covering))
    assert with_it.text == without.text
    assert with_it.score < without.score - 0.1  # attention has not seen each source token whole


def test_a_temperature_of_its_own_for_each_request_fills_no_memory(endless, monkeypatch):
    monkeypatch.setattr(batches, "MOST_FUNCTIONS", 3)
    translator = endless(max_target_length=5)
    for temperature in (0.5, 0.6):
        assert len(translator.sample(["o gato"], temperature=temperature)) == 1
        assert len(translator._in_batches._functions) == 3


def test_what_is_no_text_is_named(translator):
    with pytest.raises(ValueError, match=r"`texts` must hold Unicode without lone surrogates. Received: '\\ud800'"):
        translator(["o gato", "\ud800"])


def test_beginnings_come_as_any_sequence(translator):
    expected = translator.translate(["o gato dorme", "um livro"], prefixes=["a dog", ""])
    assert expected[0][0].text.startswith("a dog")
    for prefixes in (np.array(["a dog", ""]), (prefix for prefix in ["a dog", ""])):
        assert translator.translate(["o gato dorme", "um livro"], prefixes=prefixes) == expected


@pytest.mark.parametrize("method", ["__call__", "translate"])
def test_one_string_is_no_list(translator, method):
    with pytest.raises(TypeError, match=r"`texts` must be a list of strings, not one string: \['o gato'\]"):
        getattr(translator, method)("o gato")
    with pytest.raises(TypeError, match=r"`texts` must hold strings. Received: 7"):
        getattr(translator, method)(["o gato", 7])


def test_one_string_is_no_list_in_score_either(translator):
    with pytest.raises(TypeError, match=r"`sources` must be a list of strings, not one string: \['o gato'\]"):
        translator.score("o gato", ["the cat"])
    with pytest.raises(TypeError, match=r"`targets` must be a list of strings, not one string: \['the cat'\]"):
        translator.score(["o gato"], "the cat")
    with pytest.raises(ValueError, match=r"as many. Received: 1 sources, 2 targets"):
        translator.score(["o gato"], ["the cat", "a cat"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "`num_beams` must be a positive integer. Received: num_beams=0"),
        ({"max_length": 0}, "`max_length` must be a positive integer. Received: max_length=0"),
        ({"length_penalty": -1.0}, "`length_penalty` must be 0 or more and finite. Received: length_penalty=-1.0"),
    ],
)
def test_impossible_settings_are_refused_at_once(model, tokenizers, options, message):
    with pytest.raises(ValueError, match=message):
        kt.Translator(model, *tokenizers, **options)


def test_a_tokenizer_of_another_vocabulary_is_refused(model, tokenizers):
    source_tokenizer, target_tokenizer = tokenizers
    with pytest.raises(ValueError, match=r"`target_tokenizer` must have the model's vocabulary of 360.*size=380"):
        kt.Translator(model, source_tokenizer)
    with pytest.raises(ValueError, match=r"`source_tokenizer` must have the model's vocabulary of 380.*size=360"):
        kt.Translator(model, target_tokenizer, source_tokenizer)


def test_more_hypotheses_than_beams_are_refused(translator, sources):
    with pytest.raises(ValueError, match="num_hypotheses=5, num_beams=4"):
        translator.translate(sources[:1], num_hypotheses=5)
    with pytest.raises(ValueError, match=r"`batch_size` must be a positive integer. Received: batch_size=0"):
        translator.translate(sources[:1], batch_size=0)


RESEEDED = """
import sys
import keras
import keras_transformer as kt

translator = kt.Translator.load(sys.argv[1])
assert translator(["o gato dorme"]) == ["the cat sleeps"]
keras.utils.set_random_seed(1)
assert translator(["o gato dorme"]) == ["the cat sleeps"]
assert translator.attention("o gato dorme").target_pieces[-1] == "</s>"
keras.utils.clear_session()
assert translator(["o gato dorme"]) == ["the cat sleeps"]
"""


@pytest.mark.slow
def test_a_new_seed_or_session_leaves_a_translator_alone(translator, tmp_path, run_python):
    """Both empty TensorFlow's cache of kernels, which TF-Text's tokenizer lives in unless it has a name."""
    translator.save(tmp_path / "translator")
    run_python(RESEEDED, tmp_path / "translator")


MEMORY = """
import resource, sys
import keras_transformer as kt

translator = kt.Translator.load(sys.argv[1])
sources = ["o gato dorme na rua e o menino corre " * (1 + index * 7 % 20) for index in range(200)]
assert max(len(source) for source in sources[:20]) == max(len(source) for source in sources)

def translate(part):
    for source in part:
        translator([source])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

after_20 = translate(sources[:20])
print(translate(sources[20:]) - after_20)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_sentences(translator, tmp_path, run_python):
    translator.save(tmp_path / "translator")
    assert float(run_python(MEMORY, tmp_path / "translator")) < 30  # MB; a trace more for each would take hundreds


def test_a_changed_setting_reaches_the_next_translation(model, tokenizers, sources):
    translator = kt.Translator(model, *tokenizers, length_penalty=0.6)
    translator.translate(sources[:2])
    translator.length_penalty = 0.0
    fresh = kt.Translator(model, *tokenizers, length_penalty=0.0)
    assert translator.translate(sources[:2]) == fresh.translate(sources[:2])

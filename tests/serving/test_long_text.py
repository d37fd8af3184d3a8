"""Long text is its sentences: cut where one ends, translated alone, and joined with the white space between."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.serving.long_text import join_sentences, split_sentences

LIMIT = 24  # tokens of the fixture's short-sighted translator


def split(*texts):
    """The sentences of every text, as lists and as they are."""
    sentences = split_sentences(tf.constant(list(texts)), tf.fill([len(texts)], True))
    rows = [[] for _ in texts]
    for text, row in zip(sentences.texts.numpy(), sentences.rows.numpy(), strict=True):
        rows[row].append(text.decode())
    return rows, sentences


def joined(sentences, translate=lambda text: text):
    translations = tf.constant([[translate(text.decode())] for text in sentences.texts.numpy()])
    return [text.decode() for text in join_sentences(translations, sentences)[:, 0].numpy()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ('He said "Stop!" Then he ran.', ['He said "Stop!"', "Then he ran."]),
        ("Disse «Pára!» Depois (fugiu.) E “foi.” Sim.", ["Disse «Pára!»", "Depois (fugiu.)", "E “foi.”", "Sim."]),
        ("It is late, e.g. this one, i.e. now. Go.", ["It is late, e.g. this one, i.e. now.", "Go."]),
        (
            "It costs 3.50 at example.com. 7 came. É bom. Ёж.",
            ["It costs 3.50 at example.com.", "7 came.", "É bom.", "Ёж."],
        ),
        ("What?! No... Yes", ["What?!", "No...", "Yes"]),
        ("今日は。明日は？「はい。」終わり！さて", ["今日は。", "明日は？", "「はい。」", "終わり！", "さて"]),
        ("a line\nand another\r\n\r\n  a third", ["a line", "and another", "a third"]),
        ("no stop at all", ["no stop at all"]),
        ("A. B. C. D.", ["A.", "B.", "C.", "D."]),
        ("", [""]),
    ],
)
def test_where_a_sentence_ends(text, expected):
    (sentences,), whole = split(text)
    assert sentences == expected
    assert joined(whole) == [text]
    assert not whole.truncated.numpy().any()


@pytest.mark.parametrize(
    "text",
    ["One.  Two.\tThree.\n\nFour.\r\n Five", "\n\n  One. Two", "One.\nTwo.\n", "一。\n二。 三。", "  One. Two.", "\n"],
)
def test_white_space_is_kept(text):
    _, sentences = split(text)
    assert joined(sentences) == [text]
    assert joined(sentences, str.upper) == [text.upper()]
    assert all(text == text.lstrip() for text in (each.decode() for each in sentences.texts.numpy()))


@pytest.mark.parametrize("text", ["One.\nTwo.\n\nThree", "一。二。三。", "一。\n二。\n三", "One!\r\nTwo? \n Three."])
def test_no_sentence_is_empty(text):
    """One would be searched for nothing, be counted, and add to the score."""
    (sentences,), _ = split(text)
    assert len(sentences) == 3
    assert "" not in sentences


def test_what_is_not_long_stays_as_it_is():
    texts = ["  One. Two.\nThree ", "One. Two.", b"\xff. A", ""]
    sentences = split_sentences(tf.constant(texts), tf.constant([False, True, False, False]))
    assert sentences.texts.numpy().tolist() == [texts[0].encode(), b"One.", b"Two.", texts[2], b""]
    assert sentences.rows.numpy().tolist() == [0, 1, 1, 2, 3]
    assert sentences.gaps.numpy().tolist() == [b"", b"", b" ", b"", b""]
    assert join_sentences(sentences.texts[:, None], sentences).numpy().tolist() == [
        [text if isinstance(text, bytes) else text.encode()] for text in texts
    ]


@pytest.mark.parametrize(("number", "truncated"), [(127, False), (128, False), (129, True), (300, True)])
@pytest.mark.parametrize(("stop", "gap"), [(".", " "), ("", "\n"), (".", "\n"), ("。", "")])
def test_at_most_128_sentences(stop, gap, number, truncated):
    every = [f"No {index}{stop}" for index in range(number)]
    rows, sentences = split("Short. One", gap.join(every))
    assert rows == [["Short.", "One"], every[:128]]
    assert sentences.truncated.numpy().tolist() == [False, truncated]
    assert joined(sentences)[1] == gap.join(every[:128])


def test_odd_bytes_and_the_separator_itself():
    (invalid, separated), sentences = split(b"ab\xff\xfe. Cd \x00", "One\x1etwo. Three")
    assert invalid == ["ab\ufffd\ufffd.", "Cd \x00"]
    assert "".join(separated).replace(" ", "").replace("\x1e", "") == "Onetwo.Three"
    assert "" not in separated
    assert len(joined(sentences)) == 2


def test_no_texts_are_no_sentences():
    sentences = split_sentences(tf.constant([], tf.string), tf.constant([], tf.bool))
    assert sentences.texts.shape == (0,)
    assert join_sentences(tf.zeros([0, 2], tf.string), sentences).shape == (0, 2)


@pytest.fixture(scope="module")
def short_sighted(model, tokenizers):
    return kt.Translator(model, *tokenizers, num_beams=2, max_length=LIMIT)


@pytest.fixture(scope="module")
def translate(short_sighted):
    """`translate(how, texts)`: text, score and whether it was cut, from Python or by the graph alone."""

    def translate(how, texts, translator=short_sighted):
        if how == "translate":
            return [tuple(row[0]) for row in translator.translate(texts, batch_size=5)]
        found = translator.translate_batch(tf.constant(texts))
        columns = found["translation"][:, 0], found["score"][:, 0], found["truncated"]
        return [(text.decode(), score, cut) for text, score, cut in zip(*(x.numpy() for x in columns), strict=True)]

    return translate


both = pytest.mark.parametrize("how", ["translate", "translate_batch"])


@both
def test_many_lines_are_translated_line_by_line(translate, pairs, how):
    """What the model has learned, and 70 sentences are more than the graph searches at once."""
    some = [pairs[index * 37 % 240] for index in range(70)]
    text, expected = ("\n".join(side) for side in zip(*some, strict=True))
    ((translation, _, truncated),) = translate(how, [text])
    assert translation == expected
    assert not truncated


@both
def test_a_long_text_is_its_sentences_alone(translate, pairs, how):
    """With full stops, among short ones and empty ones, in any order."""
    sentences = [f"{source.capitalize()}." for source, _ in pairs[::23]]
    gaps = [" ", "  ", "\t", "\n\n", " \n "] * 3
    text = "".join(sum(zip(sentences, gaps, strict=False), ()))[:-1].rstrip()
    alone = translate(how, sentences)
    expected = "".join(sum(zip([each for each, *_ in alone], gaps, strict=False), ()))[:-1].rstrip()
    texts = ["", text, pairs[5][0], "   ", f"\n{text}\n", ""]
    results = translate(how, texts)
    assert [each for each, *_ in results] == ["", expected, pairs[5][1], "", f"\n{expected}\n", ""]
    assert not any(cut for *_, cut in results)
    score = sum(score for _, score, _ in alone)
    np.testing.assert_allclose(results[1][1], score, atol=1e-3)
    backwards = translate(how, texts[::-1])
    assert [each for each, *_ in backwards] == [each for each, *_ in results[::-1]]
    np.testing.assert_allclose([x[1] for x in backwards], [x[1] for x in results[::-1]], atol=1e-4)


@both
def test_2000_words(translate, translator, sources, how):
    """Without a full stop, in 400 sentences, in 100: the rest is cut, and said to be."""
    words = " ".join(["gato"] * 2000)
    lines = [sources[index % 240] for index in range(400)]
    results = translate(how, [words, "\n".join(lines), "\n".join(lines[:100]), "o gato dorme"], translator)
    assert [bool(cut) for *_, cut in results] == [True, True, False, False]
    assert results[1][0].count("\n") == 127
    assert results[2][0].count("\n") == 99
    assert results[1][0].startswith(results[2][0])
    assert results[3][0] == "the cat sleeps"
    assert all(np.isfinite(score) for _, score, _ in results)


@both
def test_around_the_limit(translate, tokenizers, how):
    """LIMIT - 1 tokens and their end fit; one more is a long text, whose one sentence is cut to what fits."""
    texts = {count: " ".join(["gato"] * count) for count in range(LIMIT - 2, LIMIT + 2)}
    assert [len(row) for row in tokenizers[0].tokenize(list(texts.values())).to_list()] == list(texts)
    below, at, above, more = translate(how, list(texts.values()))
    assert [bool(cut) for *_, cut in (below, at, above, more)] == [False, False, True, True]
    assert at[0] == above[0] == more[0]
    np.testing.assert_allclose([above[1], more[1]], at[1], atol=1e-4)


@both
def test_around_the_limit_with_sentences(translate, tokenizers, pairs, how):
    """A text that just fits is searched whole; a token more, sentence by sentence, and nothing is cut."""
    text = "o gato dorme\num cão corre depressa"
    while len(tokenizers[0].tokenize([f"{text} gato"])[0]) < LIMIT:
        text += " gato"
    texts = [text, f"{text} gato"]
    assert [len(row) for row in tokenizers[0].tokenize(texts).to_list()] == [LIMIT - 1, LIMIT]
    fits, longer = translate(how, texts)
    assert "\n" not in fits[0]
    assert longer[0].startswith("the cat sleeps\n")
    assert not fits[2]
    assert not longer[2]


def test_python_and_the_graph_agree(translate, texts, sources):
    many = [*texts, "\n".join(sources[:30]), ". ".join(sources[30:50]), "".join(sources[:9]), "一。" * 40]
    left, right = (translate(how, many) for how in ("translate", "translate_batch"))
    assert [(text, bool(cut)) for text, _, cut in left] == [(text, bool(cut)) for text, _, cut in right]
    np.testing.assert_allclose([x[1] for x in left], [x[1] for x in right], atol=2e-4)


@pytest.mark.parametrize("start", ["", "\n"])
def test_a_prefix_begins_the_first_sentence_and_no_other(short_sighted, sources, start):
    text = start + "\n".join(sources[:9])
    ((plain,),), ((forced,),) = (short_sighted.translate([text], prefixes=[prefix]) for prefix in ("", "that boy"))
    plain, forced = (each.text.removeprefix(start).split("\n") for each in (plain, forced))
    assert forced[0].startswith("that boy")
    assert forced[1:] == plain[1:]

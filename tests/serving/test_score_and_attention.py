"""How likely given translations are, and where the heads look."""

import numpy as np
import pytest

import keras_transformer as kt


def log_softmax(logits):
    logits = logits.astype("float64")
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_scores_are_the_log_softmax_of_the_logits(translator, model, tokenizers, pairs):
    portuguese = [source for source, _ in pairs[:60:6]]
    english = [target for _, target in pairs[3:63:6]]  # other sentences' translations
    scores, lengths = translator.score(portuguese, english, batch_size=4)
    assert scores.dtype == np.float32
    assert lengths.dtype == np.int32
    for source, target, score, length in zip(portuguese, english, scores, lengths, strict=True):
        source_ids = [*tokenizers[0].tokenize([source]).to_list()[0], 3]
        target_ids = [2, *tokenizers[1].tokenize([target]).to_list()[0], 3]
        inputs = {"encoder_token_ids": np.int32([source_ids]), "decoder_token_ids": np.int32([target_ids[:-1]])}
        log_p = log_softmax(model(inputs).numpy()[0])
        expected = sum(log_p[position, token] for position, token in enumerate(target_ids[1:]))
        np.testing.assert_allclose(score, expected, atol=1e-4)
        assert length == len(target_ids) - 1


def test_the_empty_translation_is_its_end_token(translator):
    scores, lengths = translator.score(["o gato dorme", ""], ["", "the cat sleeps"])
    assert lengths[0] == 1
    assert lengths[1] > 3
    assert np.all(np.isfinite(scores))
    assert np.all(scores < 0)


@pytest.mark.parametrize("name", ["translator", "greedy_translator"])
def test_searched_and_given_score_alike(request, tokenizers, sources, name):
    translator = request.getfixturevalue(name)
    hypotheses = [row[0] for row in translator.translate(sources[::8])]
    log_p, lengths = translator.score(sources[::8], [hypothesis.text for hypothesis in hypotheses])
    np.testing.assert_allclose(
        [hypothesis.score for hypothesis in hypotheses], log_p / ((5 + lengths) / 6) ** 0.6, atol=1e-4
    )


def test_where_the_heads_looked(translator, model, tokenizers):
    source, target = "o gato corre depressa", "the cat runs fast"
    maps = translator.attention(source, target)
    pieces = [
        tokenizer.pieces(tokenizer.tokenize([text])[0].numpy())
        for tokenizer, text in zip(tokenizers, (source, target), strict=True)
    ]
    assert maps.source_pieces == [*pieces[0], "</s>"]
    assert maps.target_pieces == [*pieces[1], "</s>"]
    assert maps.decoder_input_pieces == ["<s>", *pieces[1]]
    assert "".join(maps.source_pieces).replace("▁", " ").strip() == source + "</s>"
    source_length, target_length = len(maps.source_pieces), len(maps.target_pieces)
    assert source_length != target_length
    assert maps.encoder.shape == (1, 2, source_length, source_length)  # layers, heads
    assert maps.decoder.shape == (2, 2, target_length, target_length)
    assert maps.cross.shape == (2, 2, target_length, source_length)
    for kind in ("encoder", "decoder", "cross"):
        weights = getattr(maps, kind)
        assert isinstance(weights, np.ndarray)
        assert np.all(weights >= 0)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
        rows, columns = maps.labels(kind)
        assert weights.shape[2:] == (len(rows), len(columns))
    future = np.triu(np.ones((target_length, target_length), bool), k=1)
    assert np.all(maps.decoder[..., future] == 0)
    assert np.all(maps.decoder[..., 1:, 1] > 0)
    assert not np.allclose(maps.cross[0], maps.cross[1])


def test_attention_to_its_own_translation(translator):
    (translation,) = translator(["o gato dorme"])
    own, given = translator.attention("o gato dorme"), translator.attention("o gato dorme", translation)
    assert own.target_pieces == given.target_pieces
    np.testing.assert_array_equal(own.cross, given.cross)


def test_attention_of_nothing_is_that_of_the_end_token(translator):
    maps = translator.attention("")
    assert maps.source_pieces == ["</s>"]
    assert maps.decoder_input_pieces == ["<s>"]
    assert maps.target_pieces == ["</s>"]
    np.testing.assert_allclose(maps.cross, 1, atol=1e-6)


def test_there_are_three_kinds_of_attention(translator):
    with pytest.raises(ValueError, match=r"`kind` must be one of encoder, decoder, cross. Received: kind='self'"):
        translator.attention("o gato").labels("self")


def test_what_is_beyond_the_longest_is_not_scored_as_something_else(model, tokenizers):
    translator = kt.Translator(model, *tokenizers, max_length=8)
    long = "o gato dorme na rua e o menino corre " * 9
    with pytest.raises(ValueError, match=r"`sources\[1\]` is too long for max_length=8"):
        translator.score(["o gato", long], ["the cat", "the cat"])
    with pytest.raises(ValueError, match=r"`targets\[0\]` is too long for max_length=8"):
        translator.score(["o gato", "o gato"], [long, "the cat"])
    assert len(translator.attention("o gato", long).target_pieces) == 8 + 50

"""The export's signatures beside `serving_default`, and the files that go with it."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

import keras_transformer as kt
from keras_transformer.serving.export import export_translator

BATCH_SIZES = [1, 2, 4, 8, 16, 32]


@pytest.fixture(scope="module")
def signatures(export):
    return tf.saved_model.load(str(export)).signatures


def call(signature, **texts):
    outputs = signature(**{name: tf.constant(values) for name, values in texts.items()})
    return {name: value.numpy() for name, value in outputs.items()}


def test_names_dtypes_and_shapes(signatures):
    expected = {
        "serving_default": {"translation": ("string", 1), "score": ("float32", 1), "truncated": ("bool", 1)},
        "nbest": {"translation": ("string", 2), "score": ("float32", 2), "truncated": ("bool", 1)},
        "score": {"log_probability": ("float32", 1), "num_tokens": ("int32", 1), "truncated": ("bool", 1)},
        "attention": {
            **dict.fromkeys(("translation", "source_pieces", "target_pieces", "attention"), ("string", 1)),
            "truncated": ("bool", 1),
        },
    }
    assert set(signatures) == set(expected)
    for name, outputs in expected.items():
        found = signatures[name].structured_outputs
        assert {key: (spec.dtype.name, spec.shape.rank) for key, spec in found.items()} == outputs
        for spec in found.values():  # the batch is free, another size is fixed
            assert spec.shape[0] is None
            assert all(size is not None for size in spec.shape[1:])
        inputs = signatures[name].structured_input_signature[1]
        assert sorted(inputs) == (["text", "translation"] if name == "score" else ["text"])


def test_the_n_best_are_the_translators(signatures, translator, texts):
    outputs = call(signatures["nbest"], text=texts)
    assert outputs["translation"].shape == outputs["score"].shape == (len(texts), 4)
    expected = translator.translate(texts, num_hypotheses=4)
    for row, hypotheses in enumerate(expected):
        np.testing.assert_allclose(outputs["score"][row], [h.score for h in hypotheses], atol=1e-4)
        assert [text.decode() for text in outputs["translation"][row]] == [h.text for h in hypotheses]


def test_scores_of_given_translations(signatures, translator, pairs):
    sources, targets = zip(*pairs[:20], strict=True)
    outputs = call(signatures["score"], text=list(sources), translation=list(targets))
    log_probabilities, lengths = translator.score(sources, targets)
    np.testing.assert_allclose(outputs["log_probability"], log_probabilities, atol=1e-4)
    np.testing.assert_array_equal(outputs["num_tokens"], lengths)
    assert not outputs["truncated"].any()
    assert call(signatures["score"], text=["gato " * 2000], translation=["cat"])["truncated"].all()


def test_attention_is_that_of_the_full_pass_and_of_no_other_sentence(signatures, translator, sources):
    some = [sources[0], " ".join(sources[:4]), "São João 日本 😀"]
    outputs = call(signatures["attention"], text=some)
    alone = [call(signatures["attention"], text=[text]) for text in some]
    for row, text in enumerate(some):
        maps = translator.attention(text)
        assert outputs["translation"][row].decode() == translator([text])[0]
        assert outputs["source_pieces"][row].decode().split(" ") == maps.source_pieces
        assert outputs["target_pieces"][row].decode().split(" ") == maps.target_pieces
        weights = np.array(json.loads(outputs["attention"][row]))  # (layers, N, T, S)
        assert weights.shape == (2, 2, len(maps.target_pieces), len(maps.source_pieces))
        np.testing.assert_allclose(weights, maps.cross, atol=1e-4)
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-3)
        np.testing.assert_allclose(json.loads(alone[row]["attention"][0]), weights, atol=1.1e-4)


def fields(message):
    """Field number and payload of every length-delimited field of a protocol buffer."""
    position, found = 0, []
    while position < len(message):
        key, position = varint(message, position)
        assert key & 7 == 2
        length, position = varint(message, position)
        found.append((key >> 3, message[position : position + length]))
        position += length
    return found


def varint(message, position):
    value, shift = 0, 0
    while True:
        byte = message[position]
        value, shift, position = value | (byte & 0x7F) << shift, shift + 7, position + 1
        if byte < 0x80:
            return value, position


def test_the_warm_up_file_asks_for_every_batch_size_and_every_request_runs(export, signatures):
    """`make test-serving` reads it with the server's own messages."""
    path = export / "assets.extra" / "tf_serving_warmup_requests"
    asked = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        ((_, predict_log),) = fields(record)
        ((_, request),) = fields(predict_log)
        (_, spec), (_, entry) = fields(request)
        (_, name), (_, signature_name) = fields(spec)
        (_, key), (_, tensor) = fields(entry)
        assert (name, signature_name, key) == (b"translator", b"serving_default", b"text")
        asked.append(tf.make_ndarray(TensorProto.FromString(tensor)).tolist())
    assert [len(texts) for texts in asked] == [size for size in BATCH_SIZES for _ in range(3)]
    assert all(len(set(texts)) == 1 for texts in asked)
    shortest, longest, own = (texts[0].decode() for texts in asked[:3])
    assert (shortest, own) == ("", "o gato dorme")
    assert 200 < len(longest.split()) <= 256
    assert call(signatures["serving_default"], text=[text[0].decode() for text in asked[:3]])["translation"].shape == (
        3,
    )


def test_what_the_files_beside_it_say(export, translator):
    information = json.loads((export / "assets.extra" / "model_info.json").read_text(encoding="utf-8"))
    assert information["bleu"] == 97.0
    assert information["versions"]["tensorflow"] == tf.__version__
    assert information["vocabulary"] == {
        "source": translator.source_tokenizer.fingerprint,
        "target": translator.target_tokenizer.fingerprint,
    }
    assert {"SentencepieceTokenizeOp", "MatMul"} <= set(information["operations"])
    batching = (export.parent / "batching_params.pbtxt").read_text(encoding="utf-8")
    assert "max_batch_size { value: 32 }" in batching
    assert [int(line.split()[1]) for line in batching.splitlines() if "allowed" in line] == BATCH_SIZES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hypotheses": 5}, "at most the translator's `num_beams`. Received: num_hypotheses=5, num_beams=4"),
        ({"max_batch_size": 0}, "`max_batch_size` must be a positive integer. Received: max_batch_size=0"),
        ({"target_server": "2.13"}, r"`target_server` must be one of .*Received: target_server='2.13'"),
    ],
)
def test_impossible_arguments_leave_nothing(translator, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export_translator(translator, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_more_warm_up_requests_than_a_server_takes_are_refused(translator, tmp_path):
    """TensorFlow Serving loads no version that has more than a thousand: 165 texts and our own two, six times."""
    with pytest.raises(ValueError, match=r"`warmup` must hold at most 164 texts, at 6 batch sizes each.*165 texts"):
        export_translator(translator, tmp_path, warmup=["o gato"] * 165)
    with pytest.raises(TypeError, match=r"`warmup` must be a list of strings, not one string"):
        export_translator(translator, tmp_path, warmup="o gato")
    assert list(tmp_path.iterdir()) == []


def test_as_many_translations_as_texts_are_scored(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="`text` and `translation` must be as many"):
        call(signatures["score"], text=["o gato", "um livro"], translation=["the cat"])


def test_what_is_too_long_to_be_scored_is_cut_on_both_sides_and_said_to_be(signatures):
    """A translation of 100,000 characters would take more memory than any machine has."""
    long = "x" * 100_000
    outputs = call(signatures["score"], text=["o gato", long, "o gato"], translation=[long, "the cat", "the cat"])
    assert outputs["truncated"].tolist() == [True, True, False]
    assert outputs["num_tokens"][0] == 256 + 50
    assert np.all(np.isfinite(outputs["log_probability"]))


def test_another_saved_model_is_no_export(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "other"), signatures={"f": module.f})
    with pytest.raises(ValueError, match=r"other is no export of a `Translator`. Received: signatures \['f'\]"):
        kt.ExportedTranslator(tmp_path / "other")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="damaged is damaged: export it again"):
        kt.ExportedTranslator(tmp_path / "damaged")


def test_from_python_an_export_is_used_like_its_translator(export, translator, texts):
    for directory in (export, export.parent):
        exported = kt.ExportedTranslator(directory)
        assert exported(texts) == translator(texts)
    assert [[h.text for h in row] for row in exported.translate(texts[:9], num_hypotheses=3)] == [
        [h.text for h in row] for row in translator.translate(texts[:9], num_hypotheses=3)
    ]
    assert exported([]) == []
    with pytest.raises(ValueError, match="at most the 4 that"):
        exported.translate(texts, num_hypotheses=5)
    with pytest.raises(TypeError, match="not one string"):
        exported("o gato")
    with pytest.raises(FileNotFoundError, match=r"no export \(no saved_model.pb"):
        kt.ExportedTranslator(export.parent.parent / "nowhere")


def test_in_bfloat16_it_has_half_the_weights_memory_and_learned_the_same(translator, pairs):
    half = translator.astype("bfloat16")
    assert {weight.dtype for weight in half.model.weights} == {"bfloat16"}
    assert translator.model.dtype_policy.name == "float32"
    portuguese, english = zip(*pairs[::6], strict=True)
    assert np.mean([a == b for a, b in zip(half(portuguese), english, strict=True)]) > 0.9

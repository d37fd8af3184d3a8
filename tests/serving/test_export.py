"""The SavedModel: text in, text out, in a process that has TensorFlow and TF-Text alone."""

import json

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import keras_transformer as kt

WITHOUT_THE_PACKAGE = """
import json, sys
import tensorflow as tf, tensorflow_text
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = served(text=tf.constant(json.loads(sys.argv[2])))
assert not [name for name in sys.modules if name.split(".")[0] in ("keras_transformer", "sentencepiece")]
print(json.dumps([
    [text.decode("utf-8") for text in outputs["translation"].numpy()],
    outputs["score"].numpy().tolist(),
    outputs["truncated"].numpy().tolist(),
]))
"""

IDS = """
import json, sys
import tensorflow as tf, tensorflow_text
module = tf.saved_model.load(sys.argv[1])
texts = tf.constant(json.loads(sys.argv[2]))
print(json.dumps([side.numpy().tolist() for side in (module.source(texts), module.target(texts))]))
print(json.dumps([text.decode() for text in module.text(tf.constant(json.loads(sys.argv[3]))).numpy()]))
"""


@pytest.fixture(scope="module")
def serve(export):
    """What the export gives for some texts."""
    signature = tf.saved_model.load(str(export)).signatures["serving_default"]

    def serve(texts):
        outputs = signature(text=tf.constant(texts, tf.string))
        return {name: value.numpy() for name, value in outputs.items()}

    return serve


@pytest.fixture(scope="module")
def search_without_text(model):
    """Greedy search by the whole model, step by step, without cache and without package."""

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)] * 2, autograph=False)
    def last_logits(source_ids, target_ids):
        inputs = {"encoder_token_ids": source_ids, "decoder_token_ids": target_ids}
        return model(inputs, training=False)[0, -1]

    def search(source_ids, limit):
        ids = [2]
        while len(ids) <= limit and ids[-1] != 3:
            logits = last_logits(tf.constant([source_ids]), tf.constant([ids])).numpy()
            logits[[0, 2]] = -np.inf
            ids.append(int(np.argmax(logits)))
        return ids[1:]

    return search


@pytest.mark.slow
def test_a_process_without_the_package_gives_the_libraries_ids(
    greedy_translator, search_without_text, tokenizers, texts, tmp_path, run_python
):
    """Ids in and out are SentencePiece's own, each side with its own model."""
    processors = [sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes) for tokenizer in tokenizers]
    expected = []
    for text in texts:
        source_ids = [*processors[0].encode(text), 3]
        target_ids = search_without_text(source_ids, len(source_ids) + 50) if text else []
        expected.append(processors[1].decode([token for token in target_ids if token > 3]))
    export = greedy_translator.export(tmp_path)
    translations, scores, truncated = json.loads(run_python(WITHOUT_THE_PACKAGE, export, json.dumps(texts)))
    assert translations == expected
    assert np.all(np.isfinite(scores))
    assert not any(truncated)


@pytest.mark.slow
def test_two_tokenizers_keep_their_ids_in_one_graph(tokenizers, texts, tmp_path, run_python):
    processors = [sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes) for tokenizer in tokenizers]
    module = tf.Module()
    module.tokenizers = list(tokenizers)
    rank_1 = [tf.TensorSpec([None], tf.string)]
    module.source = tf.function(lambda text: tokenizers[0].tokenize(text).to_tensor(), input_signature=rank_1)
    module.target = tf.function(lambda text: tokenizers[1].tokenize(text).to_tensor(), input_signature=rank_1)
    module.text = tf.function(tokenizers[1].detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    tf.saved_model.save(module, str(tmp_path))
    output = run_python(IDS, tmp_path, json.dumps(texts), json.dumps(np.arange(4, 344).reshape(20, 17).tolist()))
    ids, decoded = map(json.loads, output.splitlines()[-2:])
    assert ids[0] != ids[1]
    for processor, rows in zip(processors, ids, strict=True):
        assert [[token for token in row if token] for row in rows] == [processor.encode(text) for text in texts]
    assert decoded == [processors[1].decode(row) for row in np.arange(4, 344).reshape(20, 17).tolist()]


@pytest.mark.slow
def test_four_beams_in_a_process_without_the_package(export, translator, texts, run_python):
    translations, scores, _ = json.loads(run_python(WITHOUT_THE_PACKAGE, export, json.dumps(texts)))
    expected = [row[0] for row in translator.translate(texts)]
    assert translations == [hypothesis.text for hypothesis in expected]
    np.testing.assert_allclose(scores, [hypothesis.score for hypothesis in expected], atol=1e-4)


def test_checkpoint_and_export_give_the_same_text(serve, translator, texts, sources):
    many = [*texts, *sources[:50]]
    outputs, expected = serve(many), [row[0] for row in translator.translate(many)]
    assert [text.decode() for text in outputs["translation"]] == [hypothesis.text for hypothesis in expected]
    np.testing.assert_allclose(outputs["score"], [hypothesis.score for hypothesis in expected], atol=1e-4)
    assert outputs["truncated"].tolist() == [hypothesis.truncated for hypothesis in expected]


def test_other_scripts_and_an_emoji_give_valid_text(serve, translator):
    text = "São João 日本 😀"
    (translation,) = serve([text])["translation"]
    assert translation.decode("utf-8") == translator([text])[0]


@pytest.mark.slow
def test_untrained_weights_give_valid_text_too(tokenizers, tmp_path):
    """They write bytes that form no character."""
    options = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = kt.Transformer(380, 360, share_embeddings=False, **options)
    export = kt.Translator(model, *tokenizers, num_beams=2).export(tmp_path)
    outputs = tf.saved_model.load(str(export)).signatures["serving_default"](
        text=tf.constant(["o gato", "São João 日本 😀"])
    )
    for text in outputs["translation"].numpy():
        text.decode("utf-8")
    assert np.all(np.isfinite(outputs["score"]))


@pytest.mark.parametrize("batch", [["o gato dorme", "este avião não é meu"], ["o gato dorme"], [""], []])
def test_any_number_of_sentences_in_one_request(serve, translator, batch):
    outputs = serve(batch)
    assert {name: (value.shape, value.dtype.name) for name, value in outputs.items()} == {
        "translation": ((len(batch),), "object"),
        "score": ((len(batch),), "float32"),
        "truncated": ((len(batch),), "bool"),
    }
    assert [text.decode() for text in outputs["translation"]] == translator(batch)


def test_what_is_too_long_is_said_to_be(serve):
    outputs = serve([" ".join(["gato"] * 2000), "o gato", " ".join(["gato"] * 255), " ".join(["gato"] * 256)])
    assert outputs["truncated"].tolist() == [True, False, False, True]
    assert np.all(np.isfinite(outputs["score"]))


def signature_of(export):
    signature = tf.saved_model.load(str(export)).signatures["serving_default"]
    _, inputs = signature.structured_input_signature
    return {
        name: (spec.name, spec.shape.as_list(), spec.dtype.name)
        for specs in (inputs, signature.structured_outputs)
        for name, spec in specs.items()
    }


def test_names_and_shapes_are_those_of_the_contract(export):
    names = {name: rest for name, (_, *rest) in signature_of(export).items()}
    assert names == {
        "text": [[None], "string"],
        "translation": [[None], "string"],
        "score": [[None], "float32"],
        "truncated": [[None], "bool"],
    }


@pytest.mark.slow
def test_names_do_not_change_from_export_to_export(export, tokenizers, train, tmp_path):
    retrained = kt.Translator(train(epochs=1, jit_compile=False), *tokenizers, num_beams=2).export(tmp_path)
    assert signature_of(retrained) == signature_of(export)

"""Text to ids and back, in the graph, after an export, and from bad input."""

import copy
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import textwrap
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.text.normalization import nfc_rules
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import _sample

REPOSITORY = Path(__file__).parents[2]
ARTICLES = (("o", "the"), ("um", "a"), ("este", "this"))
NOUNS = (
    ("gato", "cat"),
    ("cão", "dog"),
    ("menino", "boy"),
    ("livro", "book"),
    ("avião", "plane"),
    ("rio", "river"),
    ("caminho", "path"),
    ("trem", "train"),
    ("jardim", "garden"),
    ("mercado", "market"),
    ("telhado", "roof"),
    ("vizinho", "neighbour"),
)
VERBS = (
    ("dorme", "sleeps"),
    ("corre", "runs"),
    ("parou", "stopped"),
    ("é bom", "is good"),
    ("não é meu", "is not mine"),
)
PAIRS = [
    tuple(" ".join(words) for words in zip(*choice, strict=True))
    for choice in itertools.product(ARTICLES, NOUNS, VERBS)
]
PORTUGUESE = [source for source, _ in PAIRS]
ENGLISH = [target for _, target in PAIRS]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(PORTUGUESE + ENGLISH, vocabulary_size=320)


def round_trip(tokenizer, texts):
    return [text.decode("utf-8") for text in tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()]


def test_ids_are_those_of_the_sentencepiece_library(tokenizer):
    texts = [*PORTUGUESE, *ENGLISH, "São João 日本 😀", "zzz\x00\u2028 q", "", "  two   spaces "]
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    ids = tokenizer.tokenize(texts)
    assert ids.dtype == tf.int32
    assert ids.to_list() == library.encode(texts)
    assert tokenizer.vocabulary_size == library.get_piece_size() == 320


def test_start_and_end_are_added_only_on_request(tokenizer):
    texts = ["o gato dorme", ""]
    plain = tokenizer.tokenize(texts).to_list()
    assert all(token_id > 3 for row in plain for token_id in row)
    assert plain[0]
    assert not plain[1]
    assert tokenizer.tokenize(texts, add_end=True).to_list() == [[*row, 3] for row in plain]
    assert tokenizer.tokenize(texts, add_start=True).to_list() == [[2, *row] for row in plain]
    both = tokenizer.tokenize(texts, add_start=True, add_end=True)
    assert both.to_list() == [[2, *row, 3] for row in plain]
    assert both.dtype == tf.int32


def test_text_never_yields_a_special_id(tokenizer):
    ids = tokenizer.tokenize(["<s> </s> <pad> <unk>", "日本 ⁇ \ufffd", "</s>"])
    assert min(ids.flat_values.numpy()) > 3
    assert round_trip(tokenizer, ["<s> </s> <pad> <unk>"]) == ["<s> </s> <pad> <unk>"]


def test_characters_outside_the_vocabulary_round_trip(tokenizer):
    texts = ["😀 ☃ ℵ", "São João 日本 😀", "½ … ﬁ", "a\x00b"]
    assert round_trip(tokenizer, texts) == texts


def test_identity_rule_round_trips_any_composed_text():
    tokenizer = Tokenizer.train(PORTUGUESE + ENGLISH, vocabulary_size=320, normalization="identity")
    alphabet = "".join(sorted(set("".join(PORTUGUESE + ENGLISH)))) + "éßçñÅﬁ½ℵ語😀\u0308\t\u00a0\u200b\x7f\u2028"
    rng = random.Random(1)
    words = ["".join(rng.choices(alphabet.replace(" ", ""), k=rng.randint(1, 9))) for _ in range(2000)]
    texts = [unicodedata.normalize("NFC", " ".join(words[i : i + 5])) for i in range(0, 2000, 5)]
    assert round_trip(tokenizer, texts) == texts


def test_default_rule_composes_and_makes_white_space_a_space(tokenizer):
    forms = ["cafe\u0301", "e\u0323\u0302", "\u1eb9\u0302", "\u1112\u1161\u11ab", "\u1112\u1161", "\u212b", "Åﬁ½ℵ"]
    assert round_trip(tokenizer, forms) == [unicodedata.normalize("NFC", form) for form in forms]
    assert round_trip(tokenizer, ["a\u00a0b\u3000c\td\u2028e \n"]) == ["a b c d e"]


def test_default_rule_has_every_canonical_composition():
    rules = dict(line.split("\t") for line in nfc_rules().splitlines())
    for character in map(chr, range(sys.maxunicode + 1)):
        decomposed = unicodedata.normalize("NFD", character)
        composed = unicodedata.normalize("NFC", character)
        if character.isspace():
            composed = " "
        for form in {character, decomposed} - {composed}:
            assert rules[" ".join(f"{ord(c):X}" for c in form)] == " ".join(f"{ord(c):X}" for c in composed)


def test_nfkc_rule_folds_and_bpe_trains():
    tokenizer = Tokenizer.train(ENGLISH, vocabulary_size=290, model_type="bpe", normalization="nmt_nfkc")
    assert round_trip(tokenizer, ["the cat sleeps", "ℵ"]) == ["the cat sleeps", "א"]


def test_detokenize_stops_at_the_end_and_leaves_out_special_and_impossible_ids(tokenizer):
    row = tokenizer.tokenize(["o gato dorme"]).to_list()[0]
    ids = [[2, *row, 3, *row], [0, *row, 1, 0], [-1, *row, 5000], [3, *row], []]
    texts = ["o gato dorme", "o gato dorme", "o gato dorme", "", ""]
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts
    dense = tf.ragged.constant(ids, tf.int64).to_tensor(0)
    assert [text.decode() for text in tokenizer.detokenize(dense).numpy()] == texts
    assert tokenizer.detokenize(dense[:0]).shape == (0,)


def test_any_byte_pieces_detokenize_to_valid_utf8(tokenizer):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, tokenizer.vocabulary_size, (300, 20))
    ids[:200] = rng.integers(4, 260, (200, 20))  # bytes only: mostly invalid sequences
    assert tokenizer.pieces([4, 259]) == ["<0x00>", "<0xFF>"]
    for text in tokenizer.detokenize(ids).numpy():
        text.decode("utf-8")
    assert tokenizer.detokenize([[4 + 0xC3]]).numpy()[0].decode() == "\ufffd"


def test_text_is_valid_utf8_even_where_the_op_gives_other_bytes(tokenizer, monkeypatch):
    monkeypatch.setattr(type(tokenizer._op), "detokenize", lambda op, ids: tf.constant([b"a\xffb\xe3\x81"]))
    assert tokenizer.detokenize([[7]]).numpy()[0].decode() == "a\ufffdb\ufffd"


def test_works_in_a_graph_and_in_tf_data(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def there_and_back(texts):
        return tokenizer.detokenize(tokenizer.tokenize(texts, add_end=True))

    assert there_and_back(tf.constant(["o gato", "a dog"])).numpy().tolist() == [b"o gato", b"a dog"]
    dataset = tf.data.Dataset.from_tensor_slices(["o gato", "a dog"]).batch(2).map(tokenizer.tokenize)
    assert next(iter(dataset)).to_list() == tokenizer.tokenize(["o gato", "a dog"]).to_list()


def test_pieces_name_ids(tokenizer):
    assert tokenizer.pieces(np.arange(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert "".join(tokenizer.pieces(tokenizer.tokenize(["o gato"]).to_list()[0])) == "▁o▁gato"
    assert tokenizer.id_to_piece(3) == "</s>"
    assert tokenizer.pieces([]) == []
    with pytest.raises(ValueError, match=r"\[0, 320\)"):
        tokenizer.pieces([320])


def test_training_is_deterministic_to_the_byte(tokenizer):
    again = Tokenizer.train(iter(PORTUGUESE + ENGLISH), vocabulary_size=320)
    assert again.model_bytes == tokenizer.model_bytes
    assert again.fingerprint == tokenizer.fingerprint
    assert Tokenizer.train(ENGLISH, vocabulary_size=290).fingerprint != tokenizer.fingerprint


def test_training_sample_is_uniform_bounded_and_seeded():
    counts = np.zeros(100)
    for seed in range(400):
        sample = _sample(map(str, range(100)), 10, seed)
        assert len(set(sample)) == len(sample) == 10
        counts[[int(text) for text in sample]] += 1
    assert abs(counts[:50].sum() - 2000) < 150
    assert counts.min() > 15
    assert _sample(map(str, range(5)), 10, 0) == ["0", "1", "2", "3", "4"]
    assert _sample(map(str, range(10)), 10, 0) == [str(number) for number in range(10)]
    assert _sample(map(str, range(99)), 10, 7) == _sample(map(str, range(99)), 10, 7)
    assert _sample(map(str, range(99)), 10, 7) != _sample(map(str, range(99)), 10, 8)


def test_saves_loads_copies(tokenizer, tmp_path):
    path = tmp_path / "folder" / "tokenizer.model"
    tokenizer.save(path)
    tokenizer.save(str(path))
    assert os.listdir(path.parent) == ["tokenizer.model"]
    for other in (
        Tokenizer.load(path),
        Tokenizer.load(str(path)),
        Tokenizer(path.read_bytes()),
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.tokenize(PORTUGUESE).to_list() == tokenizer.tokenize(PORTUGUESE).to_list()


def test_failed_save_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"old")

    def full_disk(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        tokenizer.save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["tokenizer.model"]


@pytest.mark.parametrize("content", [b"", b"not a model " * 20])
def test_wrong_file_is_one_clear_line(content, tmp_path):
    path = tmp_path / "wrong.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a SentencePiece model") as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        Tokenizer(content)


def test_truncated_model_is_a_clear_error(tokenizer):
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        Tokenizer(tokenizer.model_bytes[:2000])


def test_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.model: no such tokenizer file"):
        Tokenizer.load(tmp_path / "absent.model")
    with pytest.raises(FileNotFoundError):
        Tokenizer.load(tmp_path)
    with pytest.raises(ValueError, match=r"Tokenizer\.load\(path\)"):
        Tokenizer("tokenizer.model")


def test_model_with_other_special_ids_is_refused(tmp_path):
    prefix = str(tmp_path / "foreign")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH), model_prefix=prefix, vocab_size=40, minloglevel=2
    )
    with pytest.raises(ValueError, match="--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3") as caught:
        Tokenizer.load(prefix + ".model")
    assert "Received: <unk>, <s>, </s>" in str(caught.value)


def test_vocabulary_too_large_names_the_largest(tmp_path):
    with pytest.raises(ValueError, match="vocabulary_size=8000 is larger than the text allows") as caught:
        Tokenizer.train(PORTUGUESE)
    message = str(caught.value)
    assert "\n" not in message
    largest = int(message.split("largest size possible is ")[1].split(".")[0])
    assert Tokenizer.train(PORTUGUESE, vocabulary_size=largest).vocabulary_size == largest
    with pytest.raises(ValueError, match="larger than the text allows"):
        Tokenizer.train(PORTUGUESE, vocabulary_size=largest + 1)


def test_vocabulary_too_small_names_the_smallest():
    with pytest.raises(ValueError, match="vocabulary_size=100 is too small") as caught:
        Tokenizer.train(PORTUGUESE, vocabulary_size=100)
    smallest = int(str(caught.value).split("at least ")[1].split(".")[0])
    with pytest.raises(ValueError, match="too small"):
        Tokenizer.train(PORTUGUESE, vocabulary_size=smallest - 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sentences": []}, "holds no text"),
        ({"sentences": ["", " "]}, "holds no text"),
        ({"sentences": ["word " * 2000]}, "longer than 4192 bytes"),
        ({"sentences": "one string"}, "iterable of strings. Received: sentences='one string'"),
        ({"vocabulary_size": 0}, "Received: vocabulary_size=0"),
        ({"vocabulary_size": 300.5}, "Received: vocabulary_size=300.5"),
        ({"model_type": "word"}, "Received: model_type='word'"),
        ({"normalization": "nfd"}, "Received: normalization='nfd'"),
        ({"max_sentences": 0}, "Received: max_sentences=0"),
        ({"character_coverage": 1.5}, "Received: character_coverage=1.5"),
    ],
)
def test_wrong_training_arguments(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer.train(**({"sentences": ENGLISH, "vocabulary_size": 290} | arguments))
    assert "\n" not in str(caught.value)


def test_no_texts_give_no_ids(tokenizer):
    ids = tokenizer.tokenize([], add_end=True)
    assert ids.shape[0] == 0
    assert tokenizer.detokenize(ids).shape == (0,)


@pytest.mark.parametrize("texts", ["one string", [["nested"]], tf.constant("scalar")])
def test_tokenize_refuses_other_ranks(tokenizer, texts):
    with pytest.raises(ValueError, match="`texts` must be a list of strings"):
        tokenizer.tokenize(texts)


def test_detokenize_refuses_other_ranks(tokenizer):
    with pytest.raises(ValueError, match="`token_ids` must have rank 2"):
        tokenizer.detokenize(tf.constant([4, 5]))


def test_training_writes_nothing_to_the_terminal(tokenizer, capfd):
    Tokenizer.train(PORTUGUESE + ENGLISH, vocabulary_size=320)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize("package", ["tensorflow_text", "sentencepiece"])
def test_missing_package_says_what_to_install(tokenizer, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match="pip install " + package.replace("_", "-")):
        Tokenizer.train(ENGLISH, vocabulary_size=290)


def run_python(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_tokenizers_in_one_export_keep_their_ids_in_a_fresh_process(tmp_path):
    models = {
        "source": Tokenizer.train(PORTUGUESE, vocabulary_size=290),
        "target": Tokenizer.train(ENGLISH, vocabulary_size=290),
    }
    text = ["o gato dorme this dog"]
    expected = {
        side: sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes).encode(text)[0]
        for side, tokenizer in models.items()
    }
    assert expected["source"] != expected["target"]

    class Both(tf.Module):
        def __init__(self):
            super().__init__()
            self.source_tokenizer = models["source"]
            self.target_tokenizer = models["target"]

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, text):  # traced by the export only
            source = self.source_tokenizer.tokenize(text)
            target = self.target_tokenizer.tokenize(text)
            return {
                "source": source.to_tensor(),
                "target": target.to_tensor(),
                "source_text": self.source_tokenizer.detokenize(source),
                "target_text": self.target_tokenizer.detokenize(target),
            }

    both = Both()
    tf.saved_model.save(both, str(tmp_path / "export"), signatures=both.serve)
    printed = run_python(
        """
        import json, sys
        import tensorflow as tf, tensorflow_text
        assert "keras_transformer" not in sys.modules
        served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](text=tf.constant([sys.argv[2]]))
        ids = {side: served[side].numpy()[0].tolist() for side in ("source", "target")}
        texts = [served[side + "_text"].numpy()[0].decode() for side in ("source", "target")]
        print(json.dumps([ids, texts]))
        """,
        tmp_path / "export",
        text[0],
    )
    ids, texts = json.loads(printed)
    assert ids == expected
    assert texts == text * 2


def test_import_loads_neither_tf_text_nor_sentencepiece():
    printed = run_python(
        """
        import sys
        import keras_transformer.text.tokenizer, keras_transformer.data
        print([name for name in ("tensorflow_text", "sentencepiece", "tensorflow_datasets") if name in sys.modules])
        """
    )
    assert printed.strip() == "[]"

"""From a batch back to the corpus: which pairs it holds, and on which lines."""

import keras
import pytest

from keras_transformer.data import token_store
from keras_transformer.data.batching import EpochOrder, make_dataset
from keras_transformer.data.corpus import DataError, ParallelCorpus
from keras_transformer.text.tokenizer import Tokenizer

WORDS = ["gato", "cão", "livro", "casa", "rio"]
LONG = "gato " * 40
# Lines 4 and 9 are blank on one side, line 6 is too long: rows, pairs and lines have three different numbers.
PAIRS = [(f"{WORDS[n % 5]} {n}", f"  {WORDS[n % 3]} {n + 100}") for n in range(1, 31)]
PAIRS[3] = ("", "blank")
PAIRS[5] = (LONG, "long")
PAIRS[8] = ("blank", " ")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([side for pair in PAIRS for side in pair], vocabulary_size=285)


@pytest.fixture
def corpus_files(tmp_path):
    """The pairs in two files a side, of 12 and 18 lines."""
    paths = {}
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in PAIRS]
        paths[name] = [tmp_path / f"{name}.{part}" for part in (1, 2)]
        for path, part in zip(paths[name], (lines[:12], lines[12:]), strict=True):
            path.write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    return paths


@pytest.fixture
def dataset(corpus_files, tokenizer, monkeypatch):
    monkeypatch.setattr(token_store, "CHUNK_SIZE", 4)
    corpus = ParallelCorpus.from_files(**corpus_files)
    return make_dataset(corpus, tokenizer, batch_tokens=64, max_length=16, seed=3)


@pytest.mark.parametrize("epoch", [0, 5])
def test_the_pairs_of_every_batch_stand_on_their_lines(dataset, tokenizer, epoch):
    dataset.set_epoch(epoch)
    seen = []
    for index, (inputs, labels, weights) in enumerate(dataset):
        pairs = dataset.batch_pairs(epoch, index)
        assert len(pairs) == int((weights[:, 0] > 0).numpy().sum())
        sources = tokenizer.detokenize(inputs["encoder_token_ids"]).numpy()
        targets = tokenizer.detokenize(labels).numpy()
        for (line, source, target), *texts in zip(pairs, sources, targets, strict=False):
            assert [text.decode() for text in texts] == [source, target]
            assert PAIRS[line - 1] == (source, "  " + target)
            seen.append(line)
    assert sorted(seen) == [line for line in range(1, 31) if line not in (4, 6, 9)]


def test_the_epoch_is_that_of_the_iteration_begun_last(dataset):
    assert dataset.epoch == 0
    for expected in range(3):
        next(iter(dataset))
        assert dataset.epoch == expected
    callback = EpochOrder(dataset)
    callback.on_epoch_begin(7)
    assert dataset.epoch == 7
    assert isinstance(callback, keras.callbacks.Callback)


@pytest.mark.parametrize("index", [-1, 1000])
def test_a_batch_that_is_not_there_is_refused(dataset, index):
    with pytest.raises(ValueError, match=f"`index` must be .* below {len(dataset)}. Received: index={index}"):
        dataset.batch_pairs(0, index)


def test_a_corpus_that_has_become_shorter_is_named(dataset, corpus_files):
    for paths in corpus_files.values():
        paths[1].write_text("gato\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"source\.1.*holds fewer pairs than when it was read"):
        [dataset.batch_pairs(0, index) for index in range(len(dataset))]

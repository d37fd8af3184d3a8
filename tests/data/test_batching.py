"""Batches: every pair exactly once an epoch, few shapes, a budget, an order that depends on seed and epoch alone."""

import gc
import itertools
import logging
import os
import random
import weakref
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy

from keras_transformer.data.batching import EpochOrder, TokenBatches, make_dataset
from keras_transformer.data.buckets import BATCHES_PER_SHAPE, MAX_SHAPES, Bucket, make_buckets
from keras_transformer.data.corpus import DataError, ParallelCorpus
from keras_transformer.data.token_store import TokenColumn
from keras_transformer.text.tokenizer import Tokenizer

WORDS = ["zero", "um", "dois", "gato", "cão", "seis", "sete", "oito", "nove", "dez"]


def numbered_corpus(size, longest=12, seed=1):
    """Pairs that are all different, with sides of 1 to `longest` words more than their number."""
    rng = random.Random(seed)

    def sentence(number):
        digits = [WORDS[int(digit)] for digit in str(number)]
        return " ".join(digits + rng.choices(WORDS, k=rng.randint(1, longest)))

    return ParallelCorpus.from_pairs([(sentence(number), sentence(number + size)) for number in range(size)])


@pytest.fixture(scope="module")
def corpus():
    return numbered_corpus(150)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return Tokenizer.train([*corpus.sources(), *corpus.targets()], vocabulary_size=285)


@pytest.fixture(scope="module")
def target_tokenizer(corpus):
    return Tokenizer.train(corpus.targets(), vocabulary_size=285, model_type="bpe")


@pytest.fixture
def dataset(corpus, tokenizer):
    return make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64, rows_multiple_of=2)


def pairs_of(batches, tokenizer, target_tokenizer=None):
    """The (source, target) texts of all real rows."""
    found = []
    for inputs, labels, weights in batches:
        sources = tokenizer.detokenize(inputs["encoder_token_ids"]).numpy()
        targets = (target_tokenizer or tokenizer).detokenize(labels).numpy()
        real = np.asarray(weights)[:, 0] > 0
        found += [(a.decode(), b.decode()) for a, b, c in zip(sources, targets, real, strict=True) if c]
    return found


def ids_of(batches):
    return [inputs["encoder_token_ids"].numpy().tobytes() for inputs, _, _ in batches]


class Recorder(keras.Model):
    """A model that writes down the batches that `fit` trains on."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.layer = keras.layers.Embedding(400, 2)

    def call(self, inputs):
        return self.layer(inputs["encoder_token_ids"])

    def train_step(self, batch):
        def record(*tensors):
            self.seen.append(({"encoder_token_ids": tensors[0]}, tensors[1], tensors[2]))
            return np.int32(0)

        inputs, labels, weights = batch
        tf.py_function(record, [inputs["encoder_token_ids"], labels, weights], tf.int32)
        return {"loss": tf.reduce_sum(self(inputs))}


def fit(dataset, epochs, callbacks=None, strategy=None, **arguments):
    with (strategy or tf.distribute.get_strategy()).scope():
        model = Recorder()
        model.compile("sgd")
    model.fit(dataset, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False, **arguments)
    return model.seen


# Content


@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_are_source_decoder_input_labels_and_weights(corpus, tokenizer, target_tokenizer, shuffle):
    dataset = make_dataset(corpus, tokenizer, target_tokenizer, batch_tokens=256, max_length=64, shuffle=shuffle)
    expected = {}
    for source, target in corpus:
        (source_ids,) = tokenizer.tokenize([source]).to_list()
        (target_ids,) = target_tokenizer.tokenize([target]).to_list()
        expected[(*source_ids, 3)] = target_ids
    for inputs, labels, weights in dataset:
        encoder, decoder = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
        assert encoder.shape == decoder.shape == labels.shape == weights.shape
        assert (encoder.dtype, decoder.dtype, labels.dtype, weights.dtype) == (*[tf.int32] * 3, tf.float32)
        columns = [tensor.numpy().tolist() for tensor in (encoder, decoder, labels, weights)]
        for source, start, label, weight in zip(*columns, strict=True):
            if not any(source):  # a filler row
                assert not any(start + label + weight)
                continue
            target = expected.pop((*itertools.takewhile(bool, source),))
            padding = [0] * (len(label) - len(target) - 1)
            assert start == [2, *target, *padding]
            assert label == [*target, 3, *padding]
            assert weight == [1.0] * (len(target) + 1) + padding
    assert not expected


def test_without_shuffle_batches_follow_the_corpus(corpus, tokenizer):
    dataset = make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64, shuffle=False, bucket_edges=[64])
    assert pairs_of(dataset, tokenizer) == list(corpus) == pairs_of(dataset, tokenizer)


# Epochs


def test_three_epochs_of_fit_show_every_pair_three_times(corpus, tokenizer, dataset):
    assert dataset.report.buckets[0].pairs % dataset.report.buckets[0].rows  # there are filler rows
    seen = fit(dataset, epochs=3)
    assert len(seen) == 3 * len(dataset) == 3 * int(dataset.cardinality()) == 3 * dataset.report.batches
    for epoch in range(3):
        batches = seen[epoch * len(dataset) : (epoch + 1) * len(dataset)]
        assert Counter(pairs_of(batches, tokenizer)) == Counter(corpus)


def test_fit_without_more_arguments_sees_epochs_0_1_2(dataset):
    seen = ids_of(fit(dataset, epochs=3))
    expected = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        expected += ids_of(dataset)
    assert seen == expected


def test_order_is_a_function_of_seed_and_epoch_alone(corpus, tokenizer):
    def order(epoch, seed=0, iterations=0):
        dataset = make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64, seed=seed)
        for _ in range(iterations):
            next(iter(dataset))
        dataset.set_epoch(epoch)
        first = ids_of(dataset)
        assert ids_of(dataset) == first
        return first

    assert order(0) == order(0) == order(0, iterations=3)
    assert order(2) == order(2, iterations=1)
    assert len({tuple(order(*arguments)) for arguments in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]}) == 5


def test_epochs_redraw_which_pairs_share_a_batch(dataset, tokenizer):
    groups = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        groups.append({frozenset(pairs_of([batch], tokenizer)) for batch in dataset})
    alone = sum(bucket.batches == 1 for bucket in dataset.report.buckets)  # such a bucket's batch is always the same
    assert len(groups[0] & groups[1]) <= alone < len(dataset) / 3


def test_skip_gives_the_rest_of_the_epoch(dataset):
    dataset.set_epoch(4)
    whole = ids_of(dataset)
    rest = dataset.skip(5)
    assert int(rest.cardinality()) == len(dataset) - 5
    assert ids_of(rest) == whole[5:]
    dataset.set_epoch(5)
    assert ids_of(rest) == ids_of(dataset)[5:] != whole[5:]


def test_epoch_order_makes_a_resumed_fit_go_on_as_if_uninterrupted(corpus, tokenizer, dataset):
    whole = ids_of(fit(dataset, epochs=3))
    fresh = make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64, rows_multiple_of=2)
    for _ in range(3):  # what has been read before does not matter
        list(fresh)
    order = [EpochOrder(fresh)]
    first = len(fresh) + 7
    assert ids_of(fit(fresh.skip(7), epochs=2, initial_epoch=1, callbacks=order)) == whole[first : 2 * len(fresh)]
    assert ids_of(fit(fresh, epochs=3, initial_epoch=2, callbacks=order)) == whole[2 * len(fresh) :]


def test_two_replicas_train_on_the_same_epochs_as_one(corpus, tokenizer, dataset):
    whole = fit(dataset, epochs=3)
    seen = fit(dataset, epochs=3, callbacks=[EpochOrder(dataset)], strategy=strategy(2))
    assert len(seen) == 2 * len(whole)
    assert {batch[1].shape[0] for batch in seen} == {bucket.rows // 2 for bucket in dataset.report.buckets}
    for epoch in range(3):
        part = slice(epoch * len(dataset), (epoch + 1) * len(dataset))
        assert Counter(pairs_of(seen[2 * part.start : 2 * part.stop], tokenizer)) == Counter(corpus)
        assert [sorted(pairs_of(seen[2 * i : 2 * i + 2], tokenizer)) for i in range(part.start, part.stop)] == [
            sorted(pairs_of([batch], tokenizer)) for batch in whole[part]
        ]


def test_what_the_order_depends_on(corpus, tokenizer):
    """One name for one order: of seed, shapes and pairs."""

    def order(pairs=corpus, seed=0, batch_tokens=256, **options):
        return make_dataset(pairs, tokenizer, batch_tokens=batch_tokens, max_length=64, seed=seed, **options).order

    others = [order(seed=1), order(batch_tokens=512), order(rows_multiple_of=4), order(shuffle=False)]
    assert len({order(), *others, order(numbered_corpus(149)), order(numbered_corpus(150, seed=2))}) == 7
    assert order() == order()


def test_wrong_epoch(dataset):
    with pytest.raises(ValueError, match="Received: epoch=-1"):
        dataset.set_epoch(-1)


# Lengths


def sentences_of_lengths(tokenizer, lengths):
    """Texts of exactly so many tokens, the end token included."""
    texts = [" ".join(["gato"] * (length - 1)) for length in lengths]
    assert [row + 1 for row in tokenizer.tokenize(texts).row_lengths().numpy()] == list(lengths)
    return texts


@pytest.mark.parametrize("side", [0, 1])
def test_lengths_around_the_limit(tokenizer, side, caplog):
    limit = 20
    texts = sentences_of_lengths(tokenizer, [limit - 1, limit, limit + 1, 100])
    pairs = [(text, "um") if side == 0 else ("um", text) for text in texts]
    with caplog.at_level(logging.INFO, "keras_transformer"):
        dataset = make_dataset(ParallelCorpus.from_pairs(pairs), tokenizer, batch_tokens=100, max_length=limit)
    assert Counter(pairs_of(dataset, tokenizer)) == Counter(pairs[:2])
    assert (dataset.report.pairs, dataset.report.dropped) == (2, 2)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "2 pairs dropped as too long" in record.getMessage()
    for inputs, labels, weights in dataset:
        for ids in (labels.numpy(), inputs["encoder_token_ids"].numpy()):
            real = weights.numpy()[:, 0] > 0
            assert ((ids == 3).sum(axis=1) == real).all()  # one end token in each real row
            last = (ids != 0).sum(axis=1)[real] - 1
            assert (ids[real, last] == 3).all()


def test_shapes_are_those_of_the_buckets_and_within_the_budget(tokenizer):
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 201, (5200, 2))
    texts = np.array(["", *(" ".join(["gato"] * length) for length in range(1, 201))], object)
    corpus = ParallelCorpus.from_pairs([(texts[a - 1], texts[b - 1]) for a, b in lengths])
    dataset = make_dataset(corpus, tokenizer, batch_tokens=1600, max_length=200, rows_multiple_of=4)
    assert len(dataset) > 500
    shapes = Counter(labels.shape for _, labels, _ in dataset)
    assert shapes == {(bucket.rows, bucket.length): bucket.batches for bucket in dataset.report.buckets}
    assert len(shapes) <= MAX_SHAPES == 24
    for rows, length in shapes:
        assert rows * length <= 1600
        assert rows % 4 == 0
        assert (rows + 4) * length > 1600  # the budget is used
    real = sum(int(np.count_nonzero(t)) for inputs, y, _ in dataset for t in (inputs["encoder_token_ids"], y))
    cells = sum(2 * rows * length * batches for (rows, length), batches in shapes.items())
    assert real == lengths.sum()
    assert dataset.report.padding == pytest.approx(1 - real / cells)


def cost(buckets, batch_tokens):
    return sum(bucket.cells + BATCHES_PER_SHAPE * batch_tokens for bucket in buckets)


def test_the_shapes_are_the_cheapest_choice():
    """Against every choice of edges among the corpus' own lengths."""
    rng = np.random.default_rng(3)
    for size in (1, 30, 1000, 50_000):
        lengths = 3 * np.minimum(2 + rng.geometric(0.2, size), 12)
        chosen = make_buckets(lengths, 512, 40, 2)
        assert sum(bucket.pairs for bucket in chosen) == size
        *own, longest = np.unique(lengths)
        for count in range(len(own) + 1):
            for some in itertools.combinations(own, count):
                other = make_buckets(lengths, 512, longest, 2, edges=[*map(int, some), longest])
                assert cost(chosen, 512) <= cost(other, 512)
    assert len(chosen) > 3  # a large corpus is worth many shapes


def test_a_few_long_pairs_get_no_shapes_of_their_own():
    lengths = np.array([10] * 5000 + [30, 60, 90, 120])
    assert [bucket.length for bucket in make_buckets(lengths, 1024, 128, 1)] == [10, 120]


def test_however_large_a_corpus_its_shapes_are_few():
    """Every length is worth a shape of its own to a corpus of millions of pairs; more than 256 are not even tried."""
    buckets = make_buckets(np.arange(1, 1001).repeat(10_000), 4096, 1000, 1)
    assert 12 < len(buckets) <= MAX_SHAPES
    assert buckets[-1].length == 1000
    assert sum(bucket.pairs for bucket in buckets) == 10_000_000


def test_given_edges_are_taken_as_they_are():
    buckets = make_buckets(np.array([3, 5, 6, 7, 30]), 60, 40, 1, edges=[5, 10, 20])
    assert buckets == (Bucket(5, 12, 2), Bucket(10, 6, 2), Bucket(40, 1, 1))
    assert [bucket.batches for bucket in buckets] == [1, 1, 1]


# Storage


@pytest.mark.parametrize(("vocabulary_size", "bytes_per_id"), [(65_536, 2), (65_537, 4)])
def test_token_column_maps_its_file(tmp_path, vocabulary_size, bytes_per_id):
    column = TokenColumn(vocabulary_size, tmp_path)
    largest = vocabulary_size - 1
    column.append(np.array([5, 6, largest]), np.array([2, 0, 1]))
    column.append(np.array([7, 8]), np.array([2]))
    column.finish()
    assert isinstance(column._ids.base, np.memmap)
    assert column._ids.nbytes == 5 * bytes_per_id
    assert (len(column), column.lengths().tolist()) == (4, [2, 0, 1, 2])
    block, lengths = column.padded(np.array([3, 1, 2]), (4, 3), before=1)
    assert block.tolist() == [[0, 7, 8], [0, 0, 0], [0, largest, 0], [0, 0, 0]]
    assert lengths.tolist() == [2, 0, 1, 0]


def test_temporary_files_vanish_with_the_dataset(corpus, tokenizer, tmp_path):
    def open_files():
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return sum(str(tmp_path) in os.readlink(link) for link in links if os.path.islink(link))

    dataset = make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64, cache_directory=tmp_path)
    assert os.listdir(tmp_path) == []  # files without a name: nothing stays behind, however the process ends
    if os.path.isdir("/proc/self/fd"):
        assert open_files() == 4
    iterator = iter(dataset)
    next(iterator)
    column = weakref.ref(dataset._columns[0])
    rest = dataset.skip(1)
    del dataset
    gc.collect()
    assert len(list(rest)) == int(rest.cardinality())  # what is derived keeps it alive
    next(iterator)
    del rest, iterator
    gc.collect()
    assert column() is None
    if os.path.isdir("/proc/self/fd"):
        assert open_files() == 0


# Options, report, errors


def test_iterators_keep_their_dataset(corpus, tokenizer):
    batches = sum(1 for _ in make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64))
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    distributed = strategy.experimental_distribute_dataset(
        make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64)
    )
    gc.collect()
    assert sum(1 for _ in distributed) == batches > 2


def test_is_a_dataset_without_autotuning(dataset):
    assert isinstance(dataset, tf.data.Dataset)
    assert isinstance(dataset, TokenBatches)
    options = dataset.options()
    assert options.autotune.enabled is False
    assert options.deterministic is True
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.DATA


def test_log_tells_what_was_made(corpus, tokenizer, caplog):
    with caplog.at_level(logging.INFO, "keras_transformer"):
        dataset = make_dataset(corpus, tokenizer, batch_tokens=256, max_length=64, bucket_edges=[16, 32])
    (record,) = caplog.records
    report = dataset.report
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        f"pairs: 150 pairs in {len(dataset)} batches of 3 shapes (16x16, 8x32, 4x64), {report.padding:.1%} padding; "
        "0 pairs dropped as too long, 0 skipped as blank"
    )
    assert sum(bucket.pairs for bucket in report.buckets) == report.pairs == 150


def test_all_pairs_too_long(tokenizer):
    corpus = ParallelCorpus.from_pairs([("gato gato gato", "um"), ("um", "gato gato gato")], name="long.tsv")
    with pytest.raises(
        DataError, match=r"^long.tsv: all 2 pairs are longer than max_length=3 tokens\. Raise max_length"
    ):
        make_dataset(corpus, tokenizer, max_length=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 0}, "Received: max_length=0"),
        ({"max_length": 2.5}, "Received: max_length=2.5"),
        ({"batch_tokens": 0}, "Received: batch_tokens=0"),
        ({"rows_multiple_of": 0}, "Received: rows_multiple_of=0"),
        ({"batch_tokens": 255}, "raise it to 256 or lower max_length. Received: batch_tokens=255"),
        ({"batch_tokens": 1000, "rows_multiple_of": 8}, "hold 8 row.* raise it to 2048 .* Received: batch_tokens=1000"),
        ({"bucket_edges": []}, r"Received: bucket_edges=\[\]"),
        ({"bucket_edges": [16, 8]}, r"Received: bucket_edges=\[16, 8\]"),
        ({"bucket_edges": [0, 8]}, r"Received: bucket_edges=\[0, 8\]"),
        ({"seed": -1}, "Received: seed=-1"),
        ({"cache_directory": "/nowhere/at/all"}, "Received: cache_directory='/nowhere/at/all'"),
    ],
)
def test_wrong_arguments(corpus, tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_dataset(corpus, tokenizer, **arguments)
    assert "\n" not in str(caught.value)


def test_misspelt_keyword(corpus, tokenizer):
    with pytest.raises(TypeError, match="batch_token"):
        make_dataset(corpus, tokenizer, batch_token=4096)


def test_a_corpus_that_gives_other_pairs_the_second_time_is_refused(tokenizer):
    pairs = iter([("um gato", "a cat")] * 20)
    corpus = ParallelCorpus(lambda: pairs, "once")
    with pytest.raises(ValueError, match="once: gave 20 pairs when it was made and 0 now"):
        make_dataset(corpus, tokenizer, batch_tokens=128, max_length=16)

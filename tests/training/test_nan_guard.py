"""A loss, or its gradient, that is no number ends training: the error names update, epoch, batch, pairs, checkpoint."""

import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt

VOCABULARY = 295
POISON = "xyz"
# Line 3 is blank on one side, so lines and rows have different numbers; the poison stands on line 14.
PAIRS = [(f"um gato {n}", f"a cat {n}") for n in range(1, 21)]
PAIRS[2] = ("", "blank")
PAIRS[13] = (f"gato {POISON}", "a poisoned cat")
POISONED_LINE = 14


@pytest.fixture(scope="module")
def tokenizer():
    return kt.Tokenizer.train([side for pair in PAIRS for side in pair], vocabulary_size=VOCABULARY)


@pytest.fixture(scope="module")
def poison_ids(tokenizer):
    """Ids that the poisoned source has and no other."""
    ids = tokenizer.tokenize([source for source, _ in PAIRS]).to_list()
    harmless = {token for row, tokens in enumerate(ids) if row != POISONED_LINE - 1 for token in tokens}
    own = set(ids[POISONED_LINE - 1]) - harmless
    assert own
    return sorted(own)


@pytest.fixture
def dataset(tokenizer):
    """19 pairs in 10 batches of two."""
    return kt.make_dataset(
        kt.ParallelCorpus.from_pairs(PAIRS), tokenizer, batch_tokens=32, max_length=16, bucket_edges=[1]
    )


@pytest.fixture
def make_model(tokenizer):
    def make(kind=kt.Transformer, dtype="float32", optimizer="sgd", **options):
        size = tokenizer.vocabulary_size
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        model = kind(size, size, **sizes, dropout=0.0, share_embeddings=False, dtype=dtype)
        model.build()
        model.compile(optimizer, loss=kt.SmoothedCrossentropy(), jit_compile=False, **options)
        return model

    return make


class WithRoots(kt.Transformer):
    """The loss of a source token whose embedding is all zeros is finite, and its gradient, of a root at 0, is not."""

    def call(self, inputs, **options):
        rows = keras.ops.take(self.source_embedding.embeddings, inputs["encoder_token_ids"], axis=0)
        self.add_loss(1e-6 * keras.ops.sum(keras.ops.sqrt(keras.ops.sum(rows**2, axis=-1))))
        return super().call(inputs, **options)


def poison(model, ids, value):
    """From now on the loss of whoever reads one of these source ids is `value`."""
    table = model.source_embedding.embeddings
    rows = np.array(table)
    rows[ids] = value
    table.assign(rows)


def poisoned_batch(dataset, ids, epoch):
    """Where the poisoned pair stands in an epoch, from the batches themselves."""
    dataset.set_epoch(epoch)
    (index,) = [index for index, (inputs, *_) in enumerate(dataset) if np.isin(inputs["encoder_token_ids"], ids).any()]
    return index


def raised_by(model, dataset, *callbacks, epochs=4, **arguments):
    with pytest.raises(FloatingPointError) as caught:
        model.fit(dataset, epochs=epochs, callbacks=list(callbacks), verbose=0, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


class PoisonAfter(keras.callbacks.Callback):
    def __init__(self, epoch, ids):
        super().__init__()
        self.epoch, self.ids = epoch, ids

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.epoch:
            poison(self.model, self.ids, np.nan)


def test_the_poisoned_pair_is_named(make_model, dataset, poison_ids):
    model = make_model()
    index = poisoned_batch(dataset, poison_ids, epoch=2)
    message = raised_by(model, dataset, kt.StopOnNaN(dataset), PoisonAfter(1, poison_ids))
    assert f"The loss is nan at update {2 * 10 + index + 1}, in batch {index + 1} of epoch 3." in message
    assert f"line {POISONED_LINE}: 'gato {POISON}' | 'a poisoned cat'" in message
    assert len(re.findall(r"line \d+:", message)) == len(dataset.batch_pairs(2, index)) <= 2
    assert "more" not in message


def test_a_gradient_that_is_no_number_is_its_own_batchs(make_model, dataset, poison_ids):
    """The next batch has the first loss that is none."""
    model = make_model(WithRoots)
    poison(model, poison_ids, 0.0)
    index = poisoned_batch(dataset, poison_ids, epoch=0)
    assert index < 9
    message = raised_by(model, dataset, kt.StopOnNaN(dataset))
    assert f"The gradient's norm is nan at update {index + 1}, in batch {index + 1} of epoch 1." in message
    assert f"line {POISONED_LINE}: 'gato {POISON}' | 'a poisoned cat'" in message


def test_all_batches_of_a_gradient_are_named(make_model, dataset, poison_ids):
    """Any of those that are accumulated for it may be at fault."""
    model = make_model(WithRoots, optimizer=keras.optimizers.SGD(gradient_accumulation_steps=5))
    poison(model, poison_ids, 0.0)
    update = poisoned_batch(dataset, poison_ids, epoch=0) // 5 + 1
    named = f"The gradient's norm is nan at update {update}, in batches {5 * update - 4} to {5 * update} of epoch 1."
    assert named in raised_by(model, dataset, kt.StopOnNaN(dataset))


def test_an_update_that_is_skipped_ends_nothing_but_all_of_them_do(make_model, dataset, poison_ids):
    """In half precision a gradient that is no number costs an update, and halves the scale, 2^15 at first."""
    model = make_model(WithRoots, dtype="mixed_float16")
    poison(model, poison_ids, 0.0)
    model.fit(dataset, epochs=2, callbacks=[kt.StopOnNaN(dataset)], verbose=0)
    statistics = model.training_statistics()
    assert (statistics["updates"], statistics["skipped_updates"], statistics["loss_scale"]) == (18, 2, 2.0**13)
    poison(model, list(range(VOCABULARY)), 0.0)
    message = raised_by(model, dataset, kt.StopOnNaN(dataset))
    assert f"The gradient's norm is nan at a loss scale of {2.0**-15} at update 18, in batch 8 of epoch 3." in message


@pytest.mark.parametrize(("first", "last"), [(4, 7), (8, 9)])
def test_all_batches_of_an_execution_are_named(make_model, dataset, poison_ids, first, last):
    """Ten batches by fours: the last execution is of two."""
    model = make_model(steps_per_execution=4)
    poison(model, poison_ids, np.nan)
    epoch = next(epoch for epoch in range(50) if first <= poisoned_batch(dataset, poison_ids, epoch) <= last)
    message = raised_by(model, dataset, kt.StopOnNaN(dataset), initial_epoch=epoch, epochs=epoch + 1)
    assert f", in batches {first + 1} to {last + 1} of epoch {epoch + 1}." in message
    pairs = [pair for batch in range(first, last + 1) for pair in dataset.batch_pairs(epoch, batch)]
    assert len(re.findall(r"line \d+:", message)) == 3
    assert f"and {len(pairs) - 3} more, see dataset.batch_pairs({epoch}, {first}), " in message
    assert f"dataset.batch_pairs({epoch}, {last})." in message
    assert POISONED_LINE in [pair.line for pair in pairs]


def test_a_batch_after_a_resume_has_its_number_in_the_epoch(make_model, dataset, poison_ids):
    model = make_model()
    poison(model, poison_ids, np.nan)
    index = poisoned_batch(dataset, poison_ids, epoch=0)
    assert index
    model.skip_batches(index)
    assert f"at update 1, in batch {index + 1} of epoch 1." in raised_by(model, dataset, kt.StopOnNaN(dataset))


@pytest.mark.parametrize(("last_good", "named"), [("runs/a/checkpoint-40", "runs/a/checkpoint-40"), (None, "none yet")])
@pytest.mark.parametrize("given", [True, False])
def test_the_last_good_checkpoint_is_named(make_model, dataset, poison_ids, last_good, named, given):
    model = make_model()
    poison(model, poison_ids, np.nan)
    checkpointing = keras.callbacks.LambdaCallback()
    checkpointing.last_good = last_good
    guard = kt.StopOnNaN(dataset, checkpointing) if given else kt.StopOnNaN(dataset)
    beside = [] if given else [checkpointing]
    assert f"Last good checkpoint: {named}." in raised_by(model, dataset, guard, *beside)


def test_without_dataset_and_checkpoints_the_rest_is_told(make_model, dataset, poison_ids):
    model = make_model()
    poison(model, poison_ids, np.nan)
    message = raised_by(model, dataset, kt.StopOnNaN())
    assert "give StopOnNaN the `dataset`" in message
    assert "give StopOnNaN the `checkpointing`" in message
    assert "of epoch 1." in message


def test_a_corpus_that_is_gone_does_not_hide_the_loss(make_model, tokenizer, tmp_path):
    files = [tmp_path / "a.src", tmp_path / "a.tgt"]
    for file in files:
        file.write_text("um gato\n" * 8, encoding="utf-8")
    dataset = kt.make_dataset(kt.ParallelCorpus.from_files(*files), tokenizer, batch_tokens=32, max_length=16)
    for file in files:
        file.unlink()
    model = make_model()
    poison(model, list(range(VOCABULARY)), np.nan)
    message = raised_by(model, dataset, kt.StopOnNaN(dataset))
    assert message.startswith("The loss is nan at update 1")
    assert "a.src" in message


def test_finite_losses_pass(make_model, dataset):
    model = make_model()
    history = model.fit(dataset, epochs=2, callbacks=[kt.StopOnNaN(dataset)], verbose=0).history
    assert len(history["loss"]) == 2


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_it_guards_any_keras_model(loss):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    inputs = np.float32([[1.0], [2.0], [3.0], [4.0]])
    labels = np.float32([[1.0], [2.0], [loss], [4.0]])
    with pytest.raises(FloatingPointError, match=f"The loss is {loss} at update 3, in batch 3 of epoch 1"):
        model.fit(inputs, labels, batch_size=1, shuffle=False, verbose=0, callbacks=[kt.StopOnNaN()])


def test_a_long_text_is_cut(make_model, tokenizer):
    corpus = kt.ParallelCorpus.from_pairs([("gato" * 25, "a\tcat")])
    dataset = kt.make_dataset(corpus, tokenizer, batch_tokens=128, max_length=128)
    model = make_model()
    poison(model, list(range(VOCABULARY)), np.nan)
    message = raised_by(model, dataset, kt.StopOnNaN(dataset))
    assert f"line 1: '{('gato' * 25)[:57]}...' | 'a\\tcat'" in message


@pytest.mark.parametrize("dataset", [3, tf.data.Dataset.range(3)])
def test_a_dataset_that_cannot_tell_is_refused(dataset):
    with pytest.raises(TypeError, match="`dataset` must be what `make_dataset` returned"):
        kt.StopOnNaN(types.SimpleNamespace() if dataset == 3 else dataset)

"""A training that test_kill_and_resume.py starts in processes of their own, and ends in different ways.

    trainee.py DIRECTORY RESULT.npz [SIGNAL UPDATE]

It counts in a weight how often each pair was trained, and writes all weights, the optimizer and the history.
"""

import json
import os
import sys

import keras
import numpy as np

import keras_transformer as kt

PAIRS = 200
EPOCHS = 4


class Counting(kt.DistributedModel):
    """Labels tokens. The number at the start of a sentence is the pair's, read back from its bytes."""

    def __init__(self, vocabulary_size):
        super().__init__()
        self.embedding = keras.layers.Embedding(vocabulary_size, 8)
        self.dropout = keras.layers.Dropout(0.1)
        self.project = keras.layers.Dense(vocabulary_size)
        self.seen = self.add_weight(shape=(HASHES,), trainable=False, initializer="zeros", name="seen")

    def call(self, inputs, training=None):
        if training:
            rows = keras.ops.one_hot(hashes(inputs["encoder_token_ids"]), HASHES)
            self.seen.assign_add(keras.ops.sum(rows, axis=0))
        return self.project(self.dropout(self.embedding(inputs["decoder_token_ids"]), training=training))


HASHES = 100_003


def hashes(token_ids):
    """A number for each row, the same whatever padding follows; 0 for rows of padding."""
    total = keras.ops.zeros_like(token_ids[:, 0])
    for column in range(8):
        total = (total * 263 + token_ids[:, column]) % HASHES
    return total


class End(keras.callbacks.Callback):
    """Sends this process a signal after an update, before the checkpoint of that update."""

    def __init__(self, number, update):
        super().__init__()
        self.number = number
        self.update = update

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.update:
            os.kill(os.getpid(), self.number)


class EachOnce(keras.callbacks.Callback):
    """At the end of epoch n every pair has been trained n times."""

    def on_epoch_end(self, epoch, logs=None):
        counts = keras.ops.convert_to_numpy(self.model.seen)
        trained = counts[1:][counts[1:] > 0]
        assert len(trained) == PAIRS, f"{len(trained)} pairs"
        assert set(trained) == {epoch + 1}, f"epoch {epoch}: {sorted(set(trained))}"


def main(directory, result, number=None, update=None):
    keras.utils.set_random_seed(1)
    pairs = [(f"{index:03d}" + "a" * (index % 9), "b" * (1 + index % 5)) for index in range(PAIRS)]
    corpus = kt.ParallelCorpus.from_pairs(pairs)
    tokenizer = kt.Tokenizer.train([*corpus.sources(), *corpus.targets()], vocabulary_size=280)
    dataset = kt.make_dataset(corpus, tokenizer, batch_tokens=64, max_length=16, bucket_edges=[8, 10], seed=5)
    model = Counting(tokenizer.vocabulary_size)
    model.compile("adam", loss=kt.SmoothedCrossentropy(), weighted_metrics=[kt.TokenAccuracy()], jit_compile=False)
    callbacks = [EachOnce(), kt.Checkpointing(directory, every_steps=5)]
    if number is not None:
        callbacks.insert(0, End(int(number), int(update)))
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=callbacks).history
    variables = [*model.variables, *model.optimizer.variables]
    arrays = {f"{index}/{variable.path}": np.asarray(variable) for index, variable in enumerate(variables)}
    np.savez(result, history=json.dumps(history), batches=len(dataset), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])

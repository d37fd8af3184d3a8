"""What a model attends to and how it translates, while it trains, in TensorBoard."""

from __future__ import annotations

import logging
import numbers
import os
import time
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.layers.arguments import check_positive
from keras_transformer.training.event_files import EventWriter
from keras_transformer.training.trained_model import check_trained_model, is_due, updates_made
from keras_transformer.training.workers import Workers
from keras_transformer.visualization.attention_entropy import entropies
from keras_transformer.visualization.attention_image import MAX_HEADS, attention_image
from keras_transformer.visualization.attention_maps import chosen_heads, integers
from keras_transformer.visualization.time_share import TimeShare
from keras_transformer.visualization.watched_sentences import watch

MAX_IMAGES = 96  # at each step
# Assumed until measured: a forward pass is traced once in a process.
_SECONDS_TO_TRACE, _SECONDS_TO_WRITE = 3.0, 1.0
_FIRST_TAG = "attention_entropy/encoder/layer_1/head_1"

logger = logging.getLogger("keras_transformer")


class AttentionTensorBoard(keras.callbacks.Callback):
    """Attention and translations of a few sentences, every few optimizer updates; beside Keras' `TensorBoard`.

    The step of every point is the number of optimizer updates. Layers, heads and sentences are counted from 1:

    - Images, `attention/KIND/layer_L/sentence_I`: KIND is "encoder", "decoder" (masked self-attention) or "cross". A
      panel for each head, a row for each piece that looks, a column for each one looked at; padding is left out.
    - Text, `translation/sentence_I`: the source, its translation with the weights of the moment, and the reference if
      one is given. Greedy: of the translator's settings only those of the length count.
    - Scalars, `attention_entropy/KIND/layer_L/head_H`, of all layers and heads: the entropy, in nats, of what a query
      attends to, mean over the queries of all sentences: 0 where all weight is on one key, ln n where n share it.
    - Histograms, `attention_entropy/KIND/layer_L`: the same of each query and head.

    Loss, rate, gradient norm, speed and padding come from `TrainingCurves`, `val_bleu` from `BleuCallback`; they may
    write into the same directory.

    **Cost.** Whenever a multiple of `every` updates is reached or passed, writing is due, and waits until what this
    callback has taken so far, will take now, and once more at the end, is within `max_share` of the time that the
    training took without it. How long it takes is known from the last time; at first 5 seconds are assumed, so that at
    the default it begins after some 4 minutes. The last state is written at the end of `fit` whatever that costs: a
    short training has its picture too, and may pay more for it. What was left out is in the log. Where
    `EarlyStopping` before this one has restored the best weights by then, it is they that are seen last.

    Steps grow strictly over a resume with `Checkpointing`, and the time goes on to count. Under several workers the
    chief alone looks and writes; nothing of it needs the others.

    Args:
        translator: A `Translator` of the model that is trained; or the `Transformer` itself.
        sentences: At most 8: sources, or (source, target) pairs of strings, whose attention is that of the target
            given, cut at the translator's `max_length`; for a `Transformer` pairs of encoder and decoder token ids,
            with ids in place of pieces, and no text.
        log_dir: Directory of the event files.
        every: Updates from point to point.
        layers: The layers in the pictures, negative ones counted from the last; `None` for all.
        heads: The heads in the pictures, 16 at most; the first 16 if not given.
        max_share: Seconds for all of this, for each second of the training; `None` to write whenever it is due.

    Raises:
        ValueError: If an argument has an impossible value, or there would be more than 96 images a step; at the start
            of `fit`, if another model is trained, or `log_dir` cannot be made.
        TypeError: If `translator` or a sentence is something else; at the start of `fit`, if the backend is not
            TensorFlow.

    Example:
        >>> def train(model, dataset, translator, directory):
        ...     attention = AttentionTensorBoard(translator, ["um gato dorme"], directory)
        ...     model.fit(dataset, epochs=10, callbacks=[TrainingCurves(directory), attention])

    Reference:
        Vaswani et al. (2017), figures 3 to 5.
    """

    def __init__(
        self,
        translator: Any,
        sentences: Sequence[Any],
        log_dir: str | os.PathLike[str],
        every: int = 500,
        layers: int | Sequence[int] | None = (-1,),
        heads: int | Sequence[int] | None = None,
        max_share: float | None = 0.02,
    ) -> None:
        super().__init__()
        self.every = check_positive("every", every)
        is_number = isinstance(max_share, numbers.Real) and not isinstance(max_share, bool)
        if max_share is not None and not (is_number and max_share > 0):
            raise ValueError(f"`max_share` must be a number above 0, or None. Received: max_share={max_share!r}")
        self.max_share = max_share
        self.log_dir = os.fspath(log_dir)
        self._watched = watch(translator, sentences)
        config = self._watched.forward.model.config
        self.layers = _chosen_layers(layers, config["num_encoder_layers"], config["num_decoder_layers"])
        self.heads = chosen_heads(heads, config["num_heads"], MAX_HEADS)
        images = len(self._watched) * sum(map(len, self.layers.values()))
        if images > MAX_IMAGES:
            raise ValueError(
                f"`sentences` and `layers` must make {MAX_IMAGES} images at most. Received: {len(self._watched)} "
                f"sentences, layers={layers!r}, which make {images}"
            )
        self._time = TimeShare(max_share)
        self._writer: EventWriter | None = None
        self._is_chief = False
        self._last_update: int | None = None
        self._due = False
        self._last_written: int | None = None
        self._seconds_to_write = _SECONDS_TO_WRITE
        self._written = self._left_out = 0

    def get_state(self) -> dict[str, Any]:
        """For `Checkpointing`."""
        return {
            "last_update": self._last_update,
            "due": self._due,
            "seconds_to_write": self._seconds_to_write,
            "written": self._written,
            "left_out": self._left_out,
            "time": self._time.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from what `get_state` gave."""
        self._last_update, self._due = state["last_update"], state["due"]
        self._seconds_to_write = state["seconds_to_write"]
        self._written, self._left_out = state["written"], state["left_out"]
        self._time.set_state(state["time"])

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if keras.backend.backend() != "tensorflow":
            raise TypeError(f"AttentionTensorBoard needs Keras on TensorFlow. Received: {keras.backend.backend()}")
        check_trained_model(self._watched.forward.model, self.model)
        self._is_chief = Workers(self.model.distribute_strategy).is_chief
        self._writer = EventWriter(self.log_dir) if self._is_chief else None
        self._last_update = None  # a checkpoint may still be restored: known at the first batch
        self._time.start()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._last_update is None:
            self._last_update, self._last_written = updates_made(self.model), None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._is_chief:
            return
        assert self._last_update is not None
        update = updates_made(self.model)
        if update == self._last_update:
            return  # a batch that is accumulated, or that a resume skips
        due = is_due(self.every, self._last_update, update)
        self._last_update = update
        if due and self._due:
            self._left_out += 1  # the one before has waited until now, and goes without
        self._due = self._due or due
        tracing = 0.0 if self._watched.forward.is_traced else _SECONDS_TO_TRACE
        if self._due and self._time.fits(2 * self._seconds_to_write + tracing):  # now, and at the end
            self._write(update)
            self._due = False

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if not self._is_chief:
            return
        self._write(updates_made(self.model))
        self._due = False
        logger.info(
            "attention for TensorBoard: written %d times in %.1f s, %.1f %% of the training's time; left out %d times "
            "(max_share=%s)",
            *(self._written, self._time.spent, 100 * self._time.spent_share(), self._left_out, self.max_share),
        )
        self.close()

    def close(self) -> None:
        """Closes the event file; `DistributedModel.fit` calls it, also when it ends by an error."""
        self._time.stop()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, update: int) -> None:
        """Writes what is seen after so many updates, unless the directory has it from before an interruption."""
        began = time.perf_counter()
        assert self._writer is not None
        if update != self._last_written and not self._writer.holds(_FIRST_TAG, update):
            self._watched.forward.trace()
            traced = time.perf_counter()
            looks = self._watched.look()
            spread = entropies([look.attention for look in looks])
            self._writer.write(
                update,
                scalars={
                    f"attention_entropy/{kind}/layer_{layer}/head_{head}": float(values.mean())
                    for kind, layers in spread.items()
                    for layer, heads in enumerate(layers, 1)
                    for head, values in enumerate(heads, 1)
                },
                histograms={
                    f"attention_entropy/{kind}/layer_{layer}": values
                    for kind, layers in spread.items()
                    for layer, values in enumerate(layers, 1)
                },
                images={
                    f"attention/{kind}/layer_{layer + 1}/sentence_{number}": attention_image(
                        look.attention, kind, layer, self.heads
                    )
                    for kind, layers in self.layers.items()
                    for layer in layers
                    for number, look in enumerate(looks, 1)
                },
                texts={
                    f"translation/sentence_{number}": look.text
                    for number, look in enumerate(looks, 1)
                    if look.text is not None
                },
            )
            self._written, self._last_written = self._written + 1, update
            self._seconds_to_write = time.perf_counter() - traced
        self._time.spent += time.perf_counter() - began


def _chosen_layers(layers: int | Sequence[int] | None, encoder: int, decoder: int) -> dict[str, list[int]]:
    """The layers of each kind, from 0; where one stack has fewer, those that it has."""
    sizes = {"encoder": encoder, "decoder": decoder, "cross": decoder}
    deepest = max(sizes.values())
    chosen = list(range(deepest)) if layers is None else integers("layers", layers)
    if not chosen or not all(-deepest <= layer < deepest for layer in chosen):
        raise ValueError(f"`layers` must be among {-deepest} to {deepest - 1}. Received: layers={layers!r}")
    return {kind: sorted({layer % size for layer in chosen if -size <= layer < size}) for kind, size in sizes.items()}

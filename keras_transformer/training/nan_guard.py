"""Stops when the loss or its gradient is no number, and says where."""

import inspect
import math
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.training.trained_model import updates_made

SHOWN_PAIRS = 3
SHOWN_CHARACTERS = 60
SMALLEST_SCALE = 2.0**-14  # float16's least normal number, 29 skipped updates below where Keras begins


class StopOnNaN(keras.callbacks.Callback):
    """Ends training with an error at the first batch whose loss is NaN or infinite, and names that batch's pairs.

    So it does where the loss is finite and its gradient is not, for a model that knows its gradient's norm
    (`DistributedModel`): the next batch's loss would be NaN, of a batch that is not at fault. Where the loss is scaled
    such updates are skipped: there it ends training when a scale below 2^-14 did not help.

    Put it first in the list of callbacks: then nothing is saved, translated or written of that batch.

    Args:
        dataset: The dataset of `make_dataset` that `fit` trains on, which knows the pairs of a batch.
        checkpointing: A callback with an attribute `last_good`, the path of the last checkpoint with a finite loss or
            `None`. If not given, the first such callback beside this one in `DistributedModel.fit`.

    Raises:
        TypeError: If `dataset` cannot tell the pairs of a batch.
        FloatingPointError: In `fit`, when loss or gradient is not finite: in one line the number of optimizer updates,
            epoch and batch, the batch's pairs, the last good checkpoint and what to do.

    Example:
        >>> def train(model, dataset):
        ...     model.fit(dataset, epochs=10, callbacks=[StopOnNaN(dataset)])
    """

    def __init__(self, dataset: Any = None, checkpointing: Any = None) -> None:
        super().__init__()
        if dataset is not None and not hasattr(dataset, "batch_pairs"):
            raise TypeError(
                "`dataset` must be what `make_dataset` returned, which has `batch_pairs`; `.map`, `.take` and the like "
                f"give another. Received: dataset={dataset!r}"
            )
        self.dataset = dataset
        self.checkpointing = checkpointing
        self._found: Any = None
        self._epoch = 0
        self._first_batch = 0
        self._updates = 0  # made before this batch

    def set_callbacks(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Takes the list that this callback runs in; `DistributedModel.fit` gives it before the training begins."""
        # Not `hasattr`: a property would look for checkpoints now.
        found = (one for one in callbacks if inspect.getattr_static(one, "last_good", self) is not self)
        self._found = next(found, None)

    def get_state(self) -> dict[str, Any]:
        """For `Checkpointing`: there is nothing to keep."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._first_batch = batch
        self._updates = updates_made(self.model)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise FloatingPointError(self._message(f"The loss is {float(loss)}", self._first_batch, batch))
        fault = self._fault_of_the_gradient()
        if fault:  # any of the batches that were accumulated for it
            first = max(0, self._first_batch + 1 - self.model.optimizer_update.accumulate)
            raise FloatingPointError(self._message(fault, first, batch))

    def _fault_of_the_gradient(self) -> str | None:
        """Of the update that this batch has ended in, or that was skipped at too small a scale."""
        if not hasattr(self.model, "training_statistics"):
            return None
        statistics = self.model.training_statistics()
        norm, scale = statistics["gradient_norm"], statistics.get("loss_scale")
        if math.isfinite(norm):
            return None
        if scale is not None:
            return f"The gradient's norm is {norm} at a loss scale of {scale}" if scale < SMALLEST_SCALE else None
        return f"The gradient's norm is {norm}" if statistics["updates"] > self._updates else None

    def _message(self, fault: str, first: int, last: int) -> str:
        if self.dataset is not None:  # the last execution of an epoch may be of fewer batches than its number says
            last = min(last, max(first, len(self.dataset) - 1))
        batches = f"batch {first + 1}" if first == last else f"batches {first + 1} to {last + 1}"
        checkpointing = self.checkpointing or self._found
        if checkpointing is None:
            checkpoint = "not known (give StopOnNaN the `checkpointing`)"
        else:
            checkpoint = checkpointing.last_good or "none yet"
        return (
            f"{fault} at update {updates_made(self.model)}, in {batches} of epoch "
            f"{self._epoch + 1}. Pairs trained on there: {self._pairs(range(first, last + 1))}. Last good checkpoint: "
            f"{checkpoint}. Look at the pairs; if nothing is wrong with them, lower the learning rate or its `scale`, "
            "or clip gradients (`global_clipnorm=1.0`), and go on from that checkpoint."
        )

    def _pairs(self, batches: range) -> str:
        if self.dataset is None:
            return "not known (give StopOnNaN the `dataset`)"
        try:
            epoch = self.dataset.epoch
            pairs = [pair for batch in batches for pair in self.dataset.batch_pairs(epoch, batch)]
        except Exception as error:  # whatever a corpus' reader raises, the loss is what must be told
            return f"not known ({' '.join(str(error).split())})"
        shown = [f"line {line}: {_start(source)} | {_start(target)}" for line, source, target in pairs[:SHOWN_PAIRS]]
        more = len(pairs) - len(shown)
        if more:
            calls = ", ".join(f"dataset.batch_pairs({epoch}, {batch})" for batch in batches)
            shown.append(f"and {more} more, see {calls}")
        return "; ".join(shown)


def _start(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "...")

"""What happens at each optimizer update, for TensorBoard."""

import os
import time
from typing import Any

import keras

from keras_transformer.layers.arguments import check_positive
from keras_transformer.training.event_files import EventWriter
from keras_transformer.training.trained_model import is_due, numbers_in, updates_made
from keras_transformer.training.workers import Workers


class TrainingCurves(keras.callbacks.Callback):
    """Loss, learning rate, gradient norm, speed and padding every few optimizer updates, and each epoch's logs.

    The step of every point is the number of optimizer updates. Whenever a multiple of `every` updates is reached or
    passed (`steps_per_execution` makes several at once), one point goes to each of:

    - `update/loss`: mean over the real elements since the last point; not Keras' running mean of the epoch.
    - `update/learning_rate`, `update/gradient_norm`: of the last update, so that the rate of update u, counted from 1,
      is `schedule(u - 1)`; the norm is that before clipping.
    - `update/tokens_per_second`: real elements, those that the loss counts, by the seconds spent in batches: without
      validation and what callbacks do at an epoch's end. The first point holds the time of tracing and compiling.
    - `update/padding_share`: share of the cells since the last point that weighed nothing (`sample_weight` 0 or 1).
    - `update/loss_scale`, `update/skipped_updates`: with loss scaling alone.

    At the end of each epoch all numbers in its logs follow as `epoch/NAME`, validation's included, so put this after
    callbacks that add to the logs, such as `BleuCallback`.

    Steps grow strictly over a resume: what a run that was killed had written beyond its last checkpoint stays, and is
    not written again. Give a new run a directory of its own. Under several workers the chief writes.

    Args:
        log_dir: Directory of the event files. It may also be given to other callbacks.
        every: Updates from point to point. The model's statistics are read once a point.

    Raises:
        TypeError: At the start of `fit`, if the model is no `DistributedModel` or the backend is not TensorFlow.
        ValueError: If `every` is not a positive integer.

    Example:
        >>> def train(model, dataset, directory):
        ...     model.fit(dataset, epochs=10, callbacks=[TrainingCurves(directory, every=50)])
    """

    def __init__(self, log_dir: str | os.PathLike[str], every: int = 10) -> None:
        super().__init__()
        self.every = check_positive("every", every)
        self.log_dir = os.fspath(log_dir)
        self._writer: EventWriter | None = None
        self._last: dict[str, float] | None = None
        self._last_update = 0
        self._seconds = 0.0  # spent in batches since the last point
        self._idle = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not hasattr(self.model, "training_statistics"):
            raise TypeError(
                "TrainingCurves needs a `DistributedModel` on the TensorFlow backend, which counts what it trains on. "
                f"Received: a {type(self.model).__name__} on {keras.backend.backend()}"
            )
        self._writer = EventWriter(self.log_dir) if Workers(self.model.distribute_strategy).is_chief else None
        self._last = None  # a checkpoint may still be restored, and this with it: counting starts at the first batch
        self._idle = False

    def get_state(self) -> dict[str, Any]:
        """For `Checkpointing`: what was counted since the last point, so that the next spans an interruption."""
        return {"last": self._last, "last_update": self._last_update, "seconds": self._seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on counting from what `get_state` gave."""
        self._last, self._last_update, self._seconds = state["last"], state["last_update"], state["seconds"]

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._last is None:
            self._idle = True
            self._count_from(self.model.training_statistics(), updates_made(self.model))
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # Every worker reads at the same updates, whoever writes: reading may take all of them.
        assert self._last is not None
        self._seconds += time.perf_counter() - self._began
        update = updates_made(self.model)
        due = is_due(self.every, self._last_update, update)
        if not (due or self._idle):
            return
        statistics = self.model.training_statistics()
        if self._idle and statistics["elements"] == self._last["elements"]:
            self._seconds = 0.0  # a batch that trained nothing, since a resume skips it
            return
        self._idle = False
        if due:
            if self._writer is not None:
                self._writer.write(update, _point(self._last, statistics, self._seconds))
            self._count_from(statistics, update)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._writer is not None:
            numbers = numbers_in(logs)
            self._writer.write(updates_made(self.model), {f"epoch/{name}": number for name, number in numbers.items()})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._writer is not None:
            self._writer.close()

    def _count_from(self, statistics: dict[str, float], update: int) -> None:
        self._last, self._last_update, self._seconds = statistics, update, 0.0


def _point(before: dict[str, float], now: dict[str, float], seconds: float) -> dict[str, float]:
    """What was trained on between two readings of the statistics."""
    real, cells, loss = (now[name] - before[name] for name in ("real_elements", "elements", "loss_sum"))
    values = {}
    if real > 0:
        values["loss"] = loss / real
    for name in ("learning_rate", "gradient_norm", "loss_scale"):
        if name in now:
            values[name] = now[name]
    if "loss_scale" in now:
        values["skipped_updates"] = now["skipped_updates"]
    if cells > 0:
        values["padding_share"] = 1.0 - real / cells
        values["tokens_per_second"] = real / seconds
    return {f"update/{name}": value for name, value in values.items()}

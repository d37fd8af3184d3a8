"""Training that goes on where it was interrupted: `Checkpointing`."""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer.training.checkpoint_directory import CheckpointDirectory
from keras_transformer.training.checkpoint_file import Checkpoint, checkpoint_path, checkpoint_paths
from keras_transformer.training.termination import Termination
from keras_transformer.training.trained_model import numbers_in
from keras_transformer.training.training_state import TrainingState
from keras_transformer.training.workers import Workers

logger = logging.getLogger("keras_transformer")


class Checkpointing(keras.callbacks.Callback):
    """Saves the whole state of a training; a later `fit` goes on from it, in the middle of an epoch too.

    A checkpoint is saved at each epoch's end, after validation, as often between as asked for, and where
    `model.stop_training` ends an epoch before its last batch: the rest of it is trained later. It holds weights,
    optimizer (moments, averages, accumulated gradients, loss scale, number of updates), metrics, the states of the
    dropouts' seeds, the other callbacks' state, the history, epoch, and position in the data. The resumed training
    equals the uninterrupted one bit for bit where that itself is the same twice: with data that come in one order, or
    in one that depends on the epoch's number alone, as those of `make_dataset` do.

    It works with every `DistributedModel`. Make it the last of the callbacks, so that it sees the others after they
    have seen a batch or an epoch. Of a callback with `get_state()` and `set_state(state)` it keeps what these give and
    take; of others the plain attributes that training changes. The constructor's arguments are not restored.

    `fit` draws the batches of a resumed epoch that were trained already and drops them. Callbacks see these batches;
    `model.optimizer.iterations` stands still meanwhile.

    Files are named `update-<updates>.ckpt` and appear whole or not at all. One that is damaged is passed over with a
    warning and the one before is used; one that cannot be written, on a full disk, costs a warning. Nothing is saved
    when the loss or a weight is not finite. With several workers the first one writes, and all have to see the same
    directory.

    Args:
        directory: Of the checkpoints of one training; made if it is not there.
        every_steps: Save also whenever this many updates have been made.
        every_minutes: Save also whenever this much time has passed.
        keep: How many of the newest checkpoints are kept; `None` for all.
        monitor: A key of the epochs' logs, `"val_loss"` for example. The checkpoint with its best value is kept too.
        mode: `"min"` or `"max"`: which value of `monitor` is best; `"auto"` knows losses, perplexity, accuracies,
            BLEU, chrF, and Keras' metrics.
        restore: Go on from the newest checkpoint; `False` for a training that begins, in a directory without any.
        handle_sigterm: At SIGTERM save at the next batch's end, also of validation, and leave the process by
            `SystemExit`: with status 0, or 1 if that could not be saved. A second SIGTERM ends it at once.

    Raises:
        ValueError: In `fit`, if the checkpoint is of another model or optimizer, or if `callbacks` holds two of these.
        FileExistsError: In `fit`, if `restore` is false and the directory holds checkpoints.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> def model():
        ...     model = Transformer(29, num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8)
        ...     model.compile("adam", loss=SmoothedCrossentropy())
        ...     return model
        >>> ids = np.full((4, 3), 5)
        >>> data = ({"encoder_token_ids": ids, "decoder_token_ids": ids}, ids)
        >>> history = model().fit(*data, epochs=1, verbose=0, callbacks=[Checkpointing(directory)])
        >>> history = model().fit(*data, epochs=2, verbose=0, callbacks=[Checkpointing(directory)])
        >>> assert history.epoch == [0, 1]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        every_steps: int | None = None,
        every_minutes: float | None = None,
        keep: int | None = 3,
        monitor: str | None = None,
        mode: str = "auto",
        restore: bool = True,
        handle_sigterm: bool = True,
    ) -> None:
        super().__init__()
        for name, value in {"every_steps": every_steps, "every_minutes": every_minutes, "keep": keep}.items():
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise ValueError(f"`{name}` must be above 0, or None. Received: {name}={value!r}")
        for name, count in {"every_steps": every_steps, "keep": keep}.items():
            if count is not None and not isinstance(count, int):
                raise ValueError(f"`{name}` must be an integer, or None. Received: {name}={count!r}")
        self.directory = Path(directory)
        self.every_steps = every_steps
        self.every_minutes = every_minutes
        self.monitor = monitor
        self.restore = restore
        self._files = CheckpointDirectory(self.directory, keep, monitor, mode)
        self._termination = Termination(handle_sigterm)
        self._workers = Workers()
        self._before: list[keras.callbacks.Callback] = []  # this one, in the list of callbacks
        self._after: list[keras.callbacks.Callback] = []
        self._state: TrainingState | None = None  # while training
        self._resumed: Checkpoint | None = None  # until its epoch goes on
        self._last_good: Path | None = None
        self._epoch = 0
        self._batches = 0  # of this epoch, trained
        self._cut_short = False  # this epoch, by `stop_training`
        self._loss = 0.0
        self._metrics: dict[str, np.ndarray] | None = None  # those of training, during validation
        self._saved_updates = self._seen_updates = -1
        self._saved_at = 0.0

    def set_callbacks(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Takes the callbacks whose state is kept. `DistributedModel.fit` calls it."""
        directories = [str(callback.directory) for callback in callbacks if isinstance(callback, Checkpointing)]
        if len(directories) > 1:  # each would restore the weights, and skip batches, on its own
            raise ValueError(f"`callbacks` must hold one Checkpointing. Received: {len(directories)}, of {directories}")
        place = list(callbacks).index(self)
        self._before, self._after = list(callbacks[:place]), list(callbacks[place + 1 :])
        if self._after:
            logger.warning("Checkpointing is not the last callback: it saves those after it one batch or epoch behind")

    def latest(self) -> Path | None:
        """The newest intact checkpoint."""
        return self._files.newest()

    def best(self) -> Path | None:
        """The intact checkpoint with the best value of `monitor`; `None` if there is no value yet."""
        return self._files.best(self.model)

    @property
    def last_good(self) -> Path | None:
        """The checkpoint that this training last wrote or went on from; before that, `latest()`."""
        if self._last_good is not None and self._last_good.exists():
            return self._last_good
        return self.latest()

    def close(self) -> None:
        """Puts SIGTERM's former handler back, as the end of training does; for when an exception has ended it."""
        self._state = self._resumed = None
        self._termination.restore()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not hasattr(self.model, "skip_batches"):
            kind = type(self.model).__name__
            raise TypeError(f"Checkpointing needs a DistributedModel on TensorFlow. Received: {kind}")
        self._workers = Workers(self.model.distribute_strategy)
        self._state = TrainingState(self.model, self._before, self._after, self._workers)
        self._files.prepare(self.model, self._workers)
        self.model._initial_epoch = None
        self._epoch = self._batches = 0
        self._loss = 0.0
        self._saved_updates = -1
        self._resumed = self._to_resume()
        if self._resumed is not None:
            self._resume(self._state, self._resumed)
        self._seen_updates = self._state.updates
        self._saved_at = time.monotonic()
        self._termination.install()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch, self._batches, self._cut_short = epoch, 0, False
        if self._resumed is None or self._state is None:
            return
        self.model._initial_epoch = None  # `fit` has read it
        facts = self._resumed.facts
        if epoch != facts["epoch"]:
            raise ValueError(
                f"{self._resumed.path} is of epoch {facts['epoch']}, and `fit` begins at {epoch}: leave out its "
                "`initial_epoch`, or give another directory."
            )
        if facts["batch"]:
            self._state.restore(self._resumed)  # also the metrics, which `fit` has reset
            self.model.skip_batches(facts["batch"])
        else:  # the callbacks before this one have begun the epoch already, from what was restored
            self._state.restore_later_callbacks(self._resumed)
            self._resumed = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        assert self._state is not None
        self._batches = batch + 1
        self._loss = (logs or {}).get("loss", 0.0)
        steps = self.params.get("steps")
        self._cut_short = self.model.stop_training and (steps is None or self._batches < steps)
        if self._resumed is not None:  # a batch that was trained before
            if self._batches >= self._resumed.facts["batch"]:
                self._state.restore(self._resumed)  # callbacks have seen the epoch begin and these batches again
                self._resumed = None
            self._leave_if_asked()
            return
        due = False
        if self.every_steps:
            updates = self._state.updates
            due = updates // self.every_steps > self._seen_updates // self.every_steps
            self._seen_updates = updates
        late = self.every_minutes is not None and time.monotonic() - self._saved_at >= 60 * self.every_minutes
        late, stop, cut_short = self._workers.any(late, self._termination.requested, self._cut_short)
        if due or late or stop or cut_short:  # here, before validation and the callbacks take the epoch for finished
            self._save_within_epoch()
        if stop:
            self._leave()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self._state is not None:  # validation is about to reset the metrics
            self._metrics = self._state.metrics()

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._state is not None:
            self._leave_if_asked()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._metrics = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.model.skip_batches(0)
        self._resumed = None
        logs = logs or {}
        self._loss = logs.get("loss", 0.0)
        # A callback after this one may have stopped training once this one had seen the batch.
        if self._cut_short or (self.model.stop_training and self._batches < (self.params.get("steps") or 0)):
            logger.info("stopped after %d batches of epoch %d, which is not finished", self._batches, epoch)
        else:
            self._save(epoch + 1, 0, logs)
        self._batches = 0
        self._leave_if_asked()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._resumed is not None and self._state is not None:  # there was no epoch left to train
            self._state.restore_later_callbacks(self._resumed)
        self.model._initial_epoch = None
        self._leave_if_asked()
        self.close()

    def _to_resume(self) -> Checkpoint | None:
        if self.restore:
            return self._files.to_resume(self._workers)
        if self._last_good is None and checkpoint_paths(self.directory):
            raise FileExistsError(f"{self.directory} holds checkpoints, and `restore` is false: give an empty one.")
        return None

    def _resume(self, state: TrainingState, checkpoint: Checkpoint) -> None:
        facts, path = checkpoint.facts, checkpoint.path
        state.check(checkpoint, self.params.get("steps"))
        state.restore(checkpoint)
        self._last_good, self._saved_updates = path, facts["updates"]
        self.model._initial_epoch = facts["epoch"]
        if not facts["batch"] and state.had_ended(checkpoint):
            logger.info("%s: early stopping had ended this training", path)
            self.model._initial_epoch = max(facts["epoch"], self.params.get("epochs") or 0)
        logger.info(
            "going on from %s: epoch %d, batch %d, %d updates", path, facts["epoch"], facts["batch"], facts["updates"]
        )

    def _save_within_epoch(self) -> None:
        if self._state is not None and self._state.updates != self._saved_updates:
            self._save(self._epoch, self._batches)  # else the last checkpoint leads to the same weights

    def _save(self, epoch: int, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves that `batch` batches of `epoch` are trained. `logs`: of the epoch before, which has just ended."""
        assert self._state is not None
        updates = self._state.updates
        path = checkpoint_path(self.directory, updates)
        self._saved_at = time.monotonic()
        arrays = self._state.arrays()
        if batch:
            arrays |= self._metrics or self._state.metrics()
        not_finite = f"the loss is {self._loss}" if not np.isfinite(self._loss) else self._state.not_finite()
        if not_finite:
            logger.warning("%s: not saved, not finite: %s", path, not_finite)
            return
        failed = False
        if self._workers.is_chief:
            facts = {
                "epoch": epoch,
                "batch": min(batch, self.params.get("steps") or batch),
                "updates": updates,
                **self._state.data(self.params.get("steps")),
                "logs": numbers_in(logs),
                "callbacks": self._state.callbacks(arrays, None if logs is None else (epoch - 1, logs)),
            }
            failed = not self._files.save(path, facts, arrays, self.model)
        if not self._workers.any(failed)[0]:  # all have to agree on what is saved: each save takes all of them
            self._saved_updates, self._last_good = updates, path

    def _leave_if_asked(self) -> None:
        if self._workers.any(self._termination.requested)[0]:
            if self._batches and self._resumed is None:
                self._save_within_epoch()
            self._leave()

    def _leave(self) -> None:
        """Ends the process as SIGTERM asks. It is saved, or was tried to."""
        saved = self._state is not None and self._state.updates == self._saved_updates
        what, goes_on = "" if saved else " and not saved", self._last_good or "the beginning"
        logger.warning("ended by SIGTERM%s: the same call goes on from %s", what, goes_on)
        self.model._initial_epoch = None
        self.close()
        raise SystemExit(0 if saved else 1)

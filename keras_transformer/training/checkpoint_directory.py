"""A directory of checkpoints: the newest intact one, the best one, and which of them stay."""

import contextlib
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.training.checkpoint_file import (
    Checkpoint,
    DamagedCheckpointError,
    checkpoint_path,
    checkpoint_paths,
    newest_checkpoint,
    number_of_updates,
    read_checkpoint,
    read_logs,
    remove_temporaries,
    write_checkpoint,
)
from keras_transformer.training.workers import Workers

logger = logging.getLogger("keras_transformer")

_DIRECTIONS = {"loss": "min", "perplexity": "min", "acc": "max", "bleu": "max", "chrf": "max"}


class CheckpointDirectory:
    """The checkpoints of one training.

    Args:
        path: The directory.
        keep: How many of the newest stay; `None` for all.
        monitor: A key of the epochs' logs, or `None`.
        mode: `"min"`, `"max"` or `"auto"`.
    """

    def __init__(self, path: Path, keep: int | None, monitor: str | None, mode: str) -> None:
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"`mode` must be 'auto', 'min' or 'max'. Received: mode={mode!r}")
        self.path = path
        self.keep = keep
        self.monitor = monitor
        self.mode = mode
        self._warned = False
        self._logs: dict[tuple[Path, int], dict[str, float]] = {}  # by file and time of writing

    def prepare(self, model: Any, workers: Workers) -> None:
        """Before training: makes the directory and clears it of what killed processes left in it.

        Raises:
            ValueError: If nobody knows whether `monitor` should be high or low.
        """
        if self.monitor is not None:
            self._direction(model)
        if workers.is_chief:
            self.path.mkdir(parents=True, exist_ok=True)
            remove_temporaries(self.path)

    def to_resume(self, workers: Workers) -> Checkpoint | None:
        """The newest intact checkpoint, the same on all workers."""
        checkpoint = newest_checkpoint(self.path) if workers.is_chief else None
        updates = workers.from_chief(checkpoint.facts["updates"] if checkpoint else -1)
        if updates >= 0:
            return checkpoint or read_checkpoint(checkpoint_path(self.path, updates))
        if workers.is_chief and checkpoint_paths(self.path):
            logger.warning("%s: no checkpoint is intact, training starts anew", self.path)
        return None

    def newest(self) -> Path | None:
        """The newest intact checkpoint."""
        checkpoint = newest_checkpoint(self.path)
        return checkpoint.path if checkpoint else None

    def best(self, model: Any) -> Path | None:
        """The intact checkpoint with the best value of `monitor`."""
        for path in self._best_first(model):
            try:
                return read_checkpoint(path).path
            except DamagedCheckpointError as error:
                logger.warning("passed over a damaged checkpoint: %s", error)
        return None

    def save(self, path: Path, facts: dict[str, Any], arrays: dict[str, np.ndarray], model: Any) -> bool:
        """Writes a checkpoint, and removes those that are no longer to be kept. Whether it could be written."""
        try:
            write_checkpoint(path, facts, arrays)
        except OSError as error:
            logger.warning("%s: not saved, training goes on: %s", path, error)
            return False
        logger.info("saved %s: epoch %d, batch %d", path, facts["epoch"], facts["batch"])
        self._remove_others(path, facts["logs"], model)
        return True

    def _remove_others(self, path: Path, logs: dict[str, float], model: Any) -> None:
        """Removes the checkpoints that are neither among the newest nor the best."""
        if self.monitor is not None and logs and self.monitor not in logs and not self._warned:
            self._warned = True
            logger.warning("no best checkpoint: `monitor` %r is not in the logs, %s are", self.monitor, sorted(logs))
        if self.keep is None:
            return
        # Those of later updates are damaged: training has passed over them and will come by again.
        paths = [other for other in checkpoint_paths(self.path) if number_of_updates(other) <= number_of_updates(path)]
        stay = {*paths[-self.keep :], *self._best_first(model)[:1]}
        for other in paths:
            if other not in stay:
                with contextlib.suppress(OSError):
                    other.unlink()

    def _best_first(self, model: Any) -> list[Path]:
        """The checkpoints with a value of `monitor`; of equal ones the older first."""
        if self.monitor is None:
            return []
        values = {path: self._read_logs(path).get(self.monitor, math.nan) for path in checkpoint_paths(self.path)}
        sign = 1 if self._direction(model) == "min" else -1
        known = [path for path, value in values.items() if not math.isnan(value)]
        return sorted(known, key=lambda path: (sign * values[path], number_of_updates(path)))

    def _read_logs(self, path: Path) -> dict[str, float]:
        try:
            key = (path, path.stat().st_mtime_ns)
        except OSError:
            return {}
        if key not in self._logs:
            self._logs[key] = read_logs(path)
        return self._logs[key]

    def _direction(self, model: Any) -> str:
        if self.mode != "auto":
            return self.mode
        name = str(self.monitor).removeprefix("val_")
        for metric in getattr(model, "metrics", ()):
            for inner in getattr(metric, "metrics", (metric,)):
                if inner.name == name and getattr(inner, "_direction", None):
                    return "max" if inner._direction == "up" else "min"
        for part, direction in _DIRECTIONS.items():
            if part in name:
                return direction
        raise ValueError(
            f"`mode` must be 'min' or 'max', since it cannot be told which is better. Received: monitor={name!r}"
        )

"""TensorBoard's event files, with steps that only grow."""

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

logger = logging.getLogger("keras_transformer")


class EventWriter:
    """Writes for TensorBoard; the steps of each tag grow strictly over all event files of the directory.

    A run that was killed may have written points that lie ahead of the checkpoint from which it goes on. They stay,
    and points up to the highest step of their tag are not written again.

    Args:
        log_dir: Where the event files lie; made if it is missing.

    Raises:
        ValueError: If it is no directory and cannot be made.
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        self._log_dir = os.fspath(log_dir)
        _make_directory(self._log_dir)
        self._highest = highest_steps(self._log_dir)
        self._writer: Any = None
        self._told = False

    def holds(self, tag: str, step: int) -> bool:
        """Whether a tag has a point at this step or after it, from before; if so, the log says it once."""
        highest = self._highest.get(tag, -1)
        if highest >= step and not self._told:
            self._told = True
            logger.warning(
                "%s: holds points up to update %d, those up to there are not written again; give a new run a directory "
                "of its own",
                *(self._log_dir, highest),
            )
        return highest >= step

    def write(
        self,
        step: int,
        scalars: Mapping[str, float] | None = None,
        histograms: Mapping[str, np.ndarray] | None = None,
        images: Mapping[str, np.ndarray] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Writes one point of each tag, at once on disk, unless the tag has one at this step or after it.

        Args:
            step: Number of optimizer updates.
            scalars: A number for each tag.
            histograms: The values that a tag's histogram is of, any shape.
            images: For each tag a picture, `(height, width, 3)`, uint8.
            texts: For each tag a text, which TensorBoard reads as Markdown.
        """
        import tensorflow as tf

        def image(tag: str, pixels: np.ndarray) -> None:
            tf.summary.image(tag, pixels[None])

        kinds: tuple[tuple[Any, Mapping[str, Any] | None], ...] = (
            (tf.summary.scalar, scalars),
            (tf.summary.histogram, histograms),
            (image, images),
            (tf.summary.text, texts),
        )
        points = [(write, tag, value) for write, values in kinds for tag, value in (values or {}).items()]
        new = [(write, tag, value) for write, tag, value in points if not self.holds(tag, step)]
        if not new:
            return
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._log_dir)
        with self._writer.as_default(step=step):
            for write, tag, value in new:
                write(tag, value)
                self._highest[tag] = step
        # The end of `as_default` has flushed the file.

    def close(self) -> None:
        """Closes the event file; a later `write` begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _make_directory(log_dir: str) -> None:
    import tensorflow as tf

    try:
        tf.io.gfile.makedirs(log_dir)
        made = tf.io.gfile.isdir(log_dir)
    except tf.errors.OpError:
        made = False
    if not made:
        raise ValueError(f"`log_dir` must be a directory, or a place to make one. Received: log_dir={log_dir!r}")


def highest_steps(log_dir: str | os.PathLike[str]) -> dict[str, int]:
    """The highest step of every tag in a directory's event files; a record cut short by a kill ends its file."""
    import tensorflow as tf
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    highest: dict[str, int] = {}
    for path in sorted(tf.io.gfile.glob(os.path.join(os.fspath(log_dir), "events.out.tfevents.*"))):
        for record in RawEventFileLoader(path).Load():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                highest[value.tag] = max(event.step, highest.get(value.tag, -1))
    return highest

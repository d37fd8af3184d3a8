"""A share of the time, for what must not hold up a training."""

import time


class TimeShare:
    """Counts the seconds of a training and those spent on something beside it.

    Args:
        share: What may be spent for each second of the training without it; `None` for as much as there is.

    Attributes:
        spent: Seconds spent so far, in the training's time.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.spent = 0.0
        self._seconds = 0.0  # up to `_since`
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """How long it took so far, with what was spent."""
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        """The training begins, or goes on."""
        self._since = time.perf_counter()

    def stop(self) -> None:
        """It has ended, or was interrupted."""
        self._seconds, self._since = self.seconds, None

    def fits(self, seconds: float) -> bool:
        """Whether so many may be spent now."""
        return self.share is None or self.spent + seconds <= self.share * (self.seconds - self.spent)

    def spent_share(self) -> float:
        """Seconds spent for each second of the training without them."""
        without = self.seconds - self.spent
        return self.spent / without if without > 0 else 0.0

    def get_state(self) -> dict[str, float]:
        """For `Checkpointing`."""
        return {"spent": self.spent, "seconds": self.seconds}

    def set_state(self, state: dict[str, float]) -> None:
        """Goes on from what `get_state` gave."""
        self.spent, self._seconds = state["spent"], state["seconds"]
        if self._since is not None:
            self.start()

"""SIGTERM as a request to end at the next batch."""

import os
import signal
import threading
from typing import Any


class Termination:
    """Notes the first SIGTERM; the second does what it would have done without this.

    Args:
        handle: Whether at all; if not, nothing is ever requested.

    Attributes:
        requested: Whether there was one.
    """

    def __init__(self, handle: bool = True) -> None:
        self._handle = handle
        self.requested = False
        self._installed = False
        self._before: Any = None

    def install(self) -> None:
        """Python lets the main thread alone handle signals; elsewhere this does nothing."""
        self.requested = False
        if self._handle and not self._installed and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._installed = True

    def restore(self) -> None:
        """Puts the former handler back."""
        if self._installed and threading.current_thread() is threading.main_thread():
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._note:  # else somebody else has replaced it meanwhile
                signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: Any) -> None:
        if self.requested:
            self.restore()
            os.kill(os.getpid(), number)
        self.requested = True

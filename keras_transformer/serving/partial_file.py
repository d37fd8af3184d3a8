"""A file that is written block by block, goes on where it was interrupted, and appears when it is complete."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any, BinaryIO


class Stream:
    """Writes what comes of the lines of a source, and counts them."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.lines, self.source_bytes = 0, 0

    def write(self, written: list[bytes], read: list[bytes]) -> None:
        """Writes what has come of some lines."""
        self.file.writelines(written)
        self.file.flush()
        self._count(read)

    def complete(self) -> None:
        """All lines are written."""

    def _count(self, read: list[bytes]) -> None:
        self.lines += len(read)
        self.source_bytes += sum(map(len, read))


class PartialFile(Stream):
    """Writes `NAME.partial` and, beside it, `NAME.partial.json`: how far it goes, and what it was made of.

    The second is written after each block, by a rename, and never speaks of more than is on the disk: what stands
    beyond it, after an interruption in between, is cut off and made again.

    Args:
        target: NAME, which appears when it is complete.
        how: What the lines depend on besides the source; must be as it was.
        source: The lines. Those that are done are read, and must be as they were.
        source_name: What an error calls them.

    Raises:
        FileNotFoundError, IsADirectoryError: If no file can come to be there.
        FileExistsError: If `NAME.partial` is there and was not begun here.
        ValueError: If it was begun otherwise, or is damaged.
    """

    def __init__(self, target: Path, how: dict[str, Any], source: BinaryIO, source_name: str) -> None:
        check_target(target)
        self.target, self.how, self.read_hash = target, how, hashlib.sha256()
        self.partial, self.journal = (target.with_name(f"{target.name}.partial{end}") for end in ("", ".json"))
        before = self._read_journal()
        super().__init__(open(self.partial, "ab"))  # noqa: SIM115 (`__exit__` closes it)
        try:
            self._go_on(before, source, source_name)
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, written: list[bytes], read: list[bytes]) -> None:
        """Writes what has come of some lines, onto the disk, and then that it is there."""
        super().write(written, read)
        os.fsync(self.file.fileno())
        self._write_journal()

    def complete(self) -> None:
        """All lines are written: the file gets its name."""
        self.file.close()
        self.partial.replace(self.target)
        self.journal.unlink()

    def _count(self, read: list[bytes]) -> None:
        super()._count(read)
        for line in read:
            self.read_hash.update(line)

    def _go_on(self, before: dict[str, Any], source: BinaryIO, source_name: str) -> None:
        """Reads the lines that are done, and begins after what has come of them."""
        for name, value in self.how.items():
            if before["how"].get(name) != value:
                raise self._refused(f"was begun with {name}={before['how'].get(name)}, not {value}")
        for line in itertools.islice(source, before["lines"]):
            self._count([line])
        if (self.lines, self.read_hash.hexdigest()) != (before["lines"], before["read"]):
            raise self._refused(f"was begun with other lines than those of {source_name}")
        if self._size() < before["bytes"]:
            raise self._refused("is shorter than it was")
        self.file.truncate(before["bytes"])
        self._write_journal()

    def _size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def _read_journal(self) -> dict[str, Any]:
        nothing = {"how": self.how, "lines": 0, "read": self.read_hash.hexdigest(), "bytes": 0}
        if not self.partial.exists() or not self.partial.stat().st_size:
            return nothing
        if not self.journal.exists():
            raise FileExistsError(f"{self.partial} is in the way: remove it, or write to another file.")
        try:
            before: dict[str, Any] = json.loads(self.journal.read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        if not isinstance(before, dict) or set(before) != set(nothing):
            raise self._refused(f"has a damaged journal, {self.journal.name}")
        return before

    def _write_journal(self) -> None:
        state = {"how": self.how, "lines": self.lines, "read": self.read_hash.hexdigest(), "bytes": self._size()}
        temporary = self.journal.with_name(f"{self.journal.name}.new")
        temporary.write_text(json.dumps(state) + "\n", encoding="utf-8")
        temporary.replace(self.journal)

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"{self.partial} {why}: remove it and {self.journal.name}, or write to another file.")


def check_target(target: Path) -> None:
    """Raises an OSError if no file can come to be there."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: no such directory: {target.parent}; make it first.")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: a directory; give a file to write to.")

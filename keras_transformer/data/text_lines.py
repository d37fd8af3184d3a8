"""Lines of text files, plain or gzip, with errors that name file and line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from typing import IO, cast


class DataError(ValueError):
    """Input data that cannot be used: the message is one line with file, line, what is wrong and how to mend it."""


class MissingFileError(DataError, FileNotFoundError):
    """An input file that is not there."""


def checked_path(path: str | os.PathLike[str]) -> str:
    """The path as a string, if there is a file.

    Raises:
        FileNotFoundError: there is none.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise MissingFileError(f"{path}: no such file. Check the path (now in {os.getcwd()}).")
    if not os.path.isfile(path):
        raise DataError(f"{path}: not a file. Give the path of a text file.")
    return path


def numbered_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line, without its end; only `\\n` ends a line, one `\\r` before it goes too.

    Raises:
        DataError: the file is empty, cannot be read or is named `.gz` and is not whole gzip.
    """
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                yield number, line.removesuffix(b"\n").removesuffix(b"\r")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: not a whole gzip file ({error}, after line {number}). Copy or download it again, "
            "or rename it if it is plain text."
        ) from error
    except PermissionError as error:
        raise DataError(f"{path}: may not be read ({error.strerror}). Change its permissions.") from error
    if not number:
        raise DataError(f"{path}: is empty. Give a file with one sentence a line.")


def decode(line: bytes, path: str, number: int) -> str:
    """The line as text; a byte order mark at the head of the file goes.

    Raises:
        DataError: the line is not UTF-8.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start}). "
            "Convert the file, for example with: iconv -f latin1 -t utf-8"
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text


def _open(path: str) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.endswith(".gz") else open(path, "rb")

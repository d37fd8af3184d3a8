"""Directories that appear whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_directory(directory: Path, replace: bool = False) -> Iterator[Path]:
    """Hands out a temporary directory beside `directory` and renames it there at the end.

    An interruption leaves `directory` as it was, but for the instant between two renames when it is replaced. The
    temporary name begins with a dot, so that no server takes it for a version.

    Args:
        directory: Where the result goes.
        replace: Whether a directory that is there already is replaced; else that is an error.

    Raises:
        FileExistsError: If `directory` exists, or has come to exist meanwhile, and is not to be replaced.
    """
    if directory.exists() and not replace:
        raise _exists(directory)
    temporary = directory.with_name(f".{directory.name}.new-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # of a killed process that had the same number
    temporary.mkdir(parents=True)
    try:
        yield temporary
        _rename(temporary, directory, replace)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _rename(temporary: Path, directory: Path, replace: bool) -> None:
    outdated = directory.with_name(f".{directory.name}.old-{os.getpid()}")
    if replace and directory.exists():
        directory.rename(outdated)
    try:
        temporary.rename(directory)
    except OSError as error:
        if directory.exists():  # another process has made it meanwhile
            raise _exists(directory) from error
        raise
    finally:
        if outdated.exists() and not directory.exists():
            outdated.rename(directory)
        shutil.rmtree(outdated, ignore_errors=True)


def _exists(directory: Path) -> FileExistsError:
    return FileExistsError(f"{directory} exists already: give another one.")

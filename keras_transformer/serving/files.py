"""Directories that appear whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_directory(directory: Path, replace: bool = False) -> Iterator[Path]:
    """Hands out a temporary directory beside `directory` and renames it there at the end.

    An interruption leaves `directory` as it was. The temporary name begins with a dot, so that no server takes it for
    a version.

    Args:
        directory: Where the result goes.
        replace: Whether a directory that is there already is replaced; else that is an error.

    Raises:
        FileExistsError: If `directory` exists and is not to be replaced.
    """
    if directory.exists() and not replace:
        raise FileExistsError(f"{directory} exists already: give another one.")
    temporary = directory.with_name(f".{directory.name}.new-{os.getpid()}")
    outdated = directory.with_name(f".{directory.name}.old-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if directory.exists():
            directory.rename(outdated)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(outdated, ignore_errors=True)

"""A checkpoint is one file that appears whole or not at all, and that is read whole or not at all."""

import contextlib
import json
import logging
import os
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer._version import __version__

logger = logging.getLogger("keras_transformer")

FORMAT = 1
_NAME = re.compile(r"update-(\d{8,})\.ckpt")
_FACTS = "checkpoint.json"
# What zipfile, json and NumPy raise on a file that is cut short, has changed bytes, or cannot be read.
_DAMAGE = (OSError, EOFError, zipfile.BadZipFile, struct.error, ValueError, KeyError, NotImplementedError, RuntimeError)


class DamagedCheckpointError(Exception):
    """A file that cannot be read whole."""


@dataclass
class Checkpoint:
    """What a file holds.

    Attributes:
        path: The file.
        facts: Epoch, batch, updates, logs, callbacks' state, versions: what JSON can hold.
        arrays: Arrays by name, `model/0003/<path of the variable>` for example, in the order of writing.
    """

    path: Path
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def checkpoint_path(directory: Path, updates: int) -> Path:
    """The file of the state after so many updates."""
    return directory / f"update-{updates:08d}.ckpt"


def number_of_updates(path: Path) -> int:
    """The number in a file's name."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def checkpoint_paths(directory: Path) -> list[Path]:
    """The checkpoints of a directory, oldest first, intact or not."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=number_of_updates)


def write_checkpoint(path: Path, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes a zip file of `.npy` members beside `path`, and renames it once it is on the disk.

    Raises:
        OSError: If it cannot be written, on a full disk for example. A file that was at `path` is as before.
    """
    facts = {**facts, "format": FORMAT, "keras_transformer": __version__, "keras": keras.__version__}
    facts["arrays"] = len(arrays)
    # NumPy's format has no name for bfloat16 and its like: their bits are written, and the type's name here.
    facts["dtypes"] = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    temporary = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr(zipfile.ZipInfo(_FACTS), json.dumps(facts))
                for name, array in arrays.items():
                    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                        bits = array.view(f"u{array.itemsize}") if name in facts["dtypes"] else array
                        np.lib.format.write_array(member, bits, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # the new name too is on the disk
    finally:
        os.close(descriptor)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a whole file, every checksum included.

    Raises:
        DamagedCheckpointError: If that fails.
        ValueError: If a later version of this package wrote the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            facts = json.loads(archive.read(_FACTS))
            arrays = {}
            for name in archive.namelist() if facts["format"] <= FORMAT else ():
                if name != _FACTS:
                    with archive.open(name) as member:
                        array = np.lib.format.read_array(member, allow_pickle=False)
                        member.read()  # to its end, where the checksum is compared
                    name = name.removesuffix(".npy")
                    arrays[name] = array.view(facts["dtypes"][name]) if name in facts["dtypes"] else array
    except _DAMAGE as error:
        raise DamagedCheckpointError(f"{path}: {error or type(error).__name__}") from error
    if facts["format"] > FORMAT:
        raise ValueError(
            f"{path} was written by keras_transformer {facts['keras_transformer']}, and this is {__version__}: update "
            "it, or give another directory."
        )
    if len(arrays) != facts["arrays"]:
        raise DamagedCheckpointError(f"{path}: {len(arrays)} of {facts['arrays']} arrays")
    return Checkpoint(path, facts, arrays)


def read_logs(path: Path) -> dict[str, float]:
    """The logs of the epoch at whose end a checkpoint was written; none for others, and for damaged ones."""
    try:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(_FACTS))["logs"]
    except _DAMAGE:
        return {}


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """The newest intact checkpoint. Others are passed over with a warning."""
    for path in reversed(checkpoint_paths(directory)):
        try:
            return read_checkpoint(path)
        except DamagedCheckpointError as error:
            logger.warning("passed over a damaged checkpoint: %s", error)
    return None


def remove_temporaries(directory: Path) -> None:
    """Removes what killed processes have left behind."""
    for path in directory.glob(".update-*.ckpt.new-*"):
        with contextlib.suppress(OSError):
            path.unlink()

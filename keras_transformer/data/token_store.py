"""The token ids of a corpus in memory-mapped temporary files."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable
from typing import IO, Any

import numpy as np

# Pairs that are tokenized at a time: enough to keep all cores busy, and a few megabytes.
CHUNK_SIZE = 8192


class TokenColumn:
    """Rows of token ids of one side of a corpus, appended chunk by chunk, then read by index.

    Ids and offsets lie in temporary files that have no name on disk: they vanish with the last reference or with the
    process, however it ends. The system keeps in memory what is in use and may drop the rest.

    Args:
        vocabulary_size: up to 65,536 ids are stored in 2 bytes each, else in 4.
        directory: folder of the temporary files; the system's own if None.
    """

    def __init__(self, vocabulary_size: int, directory: str | os.PathLike[str] | None = None):
        self._dtype = np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)
        self._ids_file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._offsets_file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._total = 0
        self._offsets_file.write(np.zeros(1, np.int64).tobytes())

    def append(self, flat_ids: np.ndarray, lengths: np.ndarray) -> None:
        """Appends rows: their ids one after the other, and the number of ids in each."""
        offsets = self._total + np.cumsum(lengths, dtype=np.int64)
        self._ids_file.write(flat_ids.astype(self._dtype).tobytes())
        self._offsets_file.write(offsets.tobytes())
        self._total += int(lengths.sum())

    def finish(self) -> None:
        """Maps the files; from here on rows are read."""
        self._ids = _mapped(self._ids_file, self._dtype)
        self._offsets = _mapped(self._offsets_file, np.dtype(np.int64))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def lengths(self) -> np.ndarray:
        """Number of ids of each row, int32 (N,)."""
        return np.diff(self._offsets).astype(np.int32)

    def padded(self, rows: np.ndarray, shape: tuple[int, int], before: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Some rows as a dense block of zeros and ids.

        Args:
            rows: indices (n,), at most `shape[0]`.
            shape: (R, L) of the block; no row may be longer than `L - before`.
            before: number of free columns before the first id.

        Returns:
            ids, int32 (R, L), and the rows' lengths, int64 (R,), 0 for the rows that are missing.
        """
        starts = self._offsets[rows]
        lengths = np.zeros(shape[0], np.int64)
        lengths[: len(rows)] = self._offsets[rows + 1] - starts
        columns = np.arange(shape[1]) - before
        real = (columns >= 0) & (columns < lengths[:, None])  # (R, L)
        block = np.zeros(shape, np.int32)
        # The index of every real cell in the flat file, row by row.
        block[real] = self._ids[np.repeat(starts, lengths[: len(rows)]) + np.broadcast_to(columns, shape)[real]]
        return block, lengths


def _mapped(file: IO[bytes], dtype: np.dtype) -> np.ndarray:
    with file:  # the map stays when the file is closed
        file.flush()
        return np.asarray(np.memmap(file, dtype=dtype, mode="r")) if file.tell() else np.zeros(0, dtype)


def tokenize_pairs(
    pairs: Iterable[tuple[str, str]],
    source_tokenizer: Any,
    target_tokenizer: Any,
    max_length: int,
    directory: str | os.PathLike[str] | None = None,
) -> tuple[TokenColumn, TokenColumn, np.ndarray]:
    """Tokenizes a corpus chunk by chunk; pairs of which a side is too long for its end token are dropped whole.

    Args:
        pairs: (source, target) strings.
        source_tokenizer: `Tokenizer` of the source side.
        target_tokenizer: `Tokenizer` of the target side.
        max_length: largest number of tokens of a side, its end token included.
        directory: folder of the temporary files.

    Returns:
        source rows, target rows (without start and end ids) and the indices of the dropped pairs, int64, ascending.
    """
    tokenizers = (source_tokenizer, target_tokenizer)
    columns = tuple(TokenColumn(tokenizer.vocabulary_size, directory) for tokenizer in tokenizers)
    dropped = []
    total = 0
    stream = iter(pairs)
    while chunk := list(itertools.islice(stream, CHUNK_SIZE)):
        texts = zip(*chunk, strict=True)
        sides = [tokenizer.tokenize(list(side)) for tokenizer, side in zip(tokenizers, texts, strict=True)]
        flat = [side.flat_values.numpy() for side in sides]
        lengths = [side.row_lengths().numpy() for side in sides]
        fits = np.maximum(lengths[0], lengths[1]) < max_length
        dropped.append(total + np.flatnonzero(~fits))
        total += len(chunk)
        for column, ids, sizes in zip(columns, flat, lengths, strict=True):
            column.append(ids[np.repeat(fits, sizes)], sizes[fits])
    for column in columns:
        column.finish()
    return columns[0], columns[1], np.concatenate([np.zeros(0, np.int64), *dropped])

"""Sentence pairs from files, TSV, TensorFlow Datasets or the built-in sample."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from keras_transformer.data.text_lines import DataError, checked_path, decode, numbered_lines

logger = logging.getLogger("keras_transformer")

PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike]
Pair = tuple[str, str]

SAMPLE_SIZES = {"train": 40_000, "validation": 500, "test": 500}

__all__ = ["DataError", "ParallelCorpus"]


class ParallelCorpus:
    """Source and target sentences, pair by pair, in order, as often as one likes.

    Files are read anew in each pass and never held in memory. The constructor's own pass checks every line, counts the
    pairs and says how many it leaves out: a pair with a blank side is not a pair. White space at both ends is stripped.

    Args:
        read: returns a new iterator over all pairs each time that it is called.
        name: what to call the corpus in messages.

    Raises:
        DataError: no pair is left.

    Example:

    >>> corpus = ParallelCorpus.from_pairs([("bom dia", "good morning"), ("sim", "yes")])
    >>> len(corpus), list(corpus.targets())
    (2, ['good morning', 'yes'])
    """

    def __init__(self, read: Callable[[], Iterable[Pair]], name: str):
        self.name = name
        self._read = read
        total = 0
        kept = 0
        for source, target in read():
            total += 1
            kept += bool(source.strip() and target.strip())
        self._length = kept
        self.skipped = total - kept
        if not kept:
            raise DataError(f"{name}: holds no sentence pair ({total} lines, all with a blank side); give it text.")
        if self.skipped:
            logger.warning("%s: skipped %d of %d pairs, one side is blank", name, self.skipped, total)

    @classmethod
    def from_files(cls, source: Paths, target: Paths) -> ParallelCorpus:
        """Pairs from two files of which line n of one translates line n of the other.

        Lines end with `\\n` alone (or `\\r\\n`): no other character splits a line. Files named `.gz` are decompressed.

        Args:
            source: path of the source side, UTF-8, or a list of paths that are read one after the other.
            target: path or paths of the target side.

        Returns:
            A `ParallelCorpus`.

        Raises:
            FileNotFoundError: a file is missing (also a `DataError`).
            DataError: numbers of lines differ, invalid UTF-8, an empty file, a broken gzip file.
        """
        sources, targets = _paths(source), _paths(target)
        if len(sources) != len(targets):
            raise ValueError(
                f"`source` and `target` must name as many files. Received: {len(sources)} and {len(targets)}"
            )
        for path in sources + targets:
            checked_path(path)
        files = list(zip(sources, targets, strict=True))
        return cls(lambda: _read_files(files), name=" + ".join(f"{a} | {b}" for a, b in files))

    @classmethod
    def from_tsv(cls, path: PathLike, source_column: int = 0, target_column: int = 1) -> ParallelCorpus:
        """Pairs from a file of tab-separated columns without quoting; other columns are ignored.

        Args:
            path: the file, UTF-8; decompressed if named `.gz`.
            source_column: column of the source sentence, from 0.
            target_column: column of the target sentence, from 0.

        Returns:
            A `ParallelCorpus`.

        Raises:
            FileNotFoundError: the file is missing (also a `DataError`).
            DataError: a line has too few columns, invalid UTF-8, an empty file.
        """
        for name, column in (("source_column", source_column), ("target_column", target_column)):
            if not isinstance(column, int) or column < 0:
                raise ValueError(f"`{name}` must be an integer, 0 or more. Received: {name}={column!r}")
        file = checked_path(path)
        return cls(lambda: _read_tsv(file, source_column, target_column), name=file)

    @classmethod
    def from_tfds(cls, name: str, split: str = "train") -> ParallelCorpus:
        """Pairs from a translation data set of TensorFlow Datasets, which is downloaded on first use.

        Args:
            name: for example `"ted_hrlr_translate/pt_to_en"` (whose download has been reported dead since 2026).
            split: for example `"train"`.

        Returns:
            A `ParallelCorpus`.

        Raises:
            ImportError: the `tfds` extra is not installed.
            DataError: the data set could not be downloaded or prepared.
        """
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(
                "ParallelCorpus.from_tfds needs TensorFlow Datasets; install it with: "
                'pip install "keras-transformer-seq2seq[tfds]"'
            ) from error
        try:
            dataset = tfds.load(name, split=split, as_supervised=True)
        except Exception as error:  # tfds raises whatever its downloader, its registry or the data set's code raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise DataError(
                f"{name}: TensorFlow Datasets could not provide split {split!r} ({reason}). If its download is gone, "
                "use ParallelCorpus.sample() or your own files with ParallelCorpus.from_files(source, target)."
            ) from error
        return cls(lambda: ((a.decode(), b.decode()) for a, b in tfds.as_numpy(dataset)), name=f"{name}:{split}")

    @classmethod
    def sample(cls, split: str = "train", size: int | None = None, seed: int = 0) -> ParallelCorpus:
        """The built-in synthetic Portuguese-English sample, which needs no network.

        Args:
            split: `"train"`, `"validation"` or `"test"`; test sentences are combinations that training never sees.
            size: number of pairs; 40,000 for training and 500 for the others if not given.
            seed: seed of the choice of pairs.

        Returns:
            A `ParallelCorpus`.
        """
        if split not in SAMPLE_SIZES:
            raise ValueError(f"`split` must be one of {list(SAMPLE_SIZES)}. Received: split={split!r}")
        from keras_transformer.data.phrasebook import phrasebook

        size = SAMPLE_SIZES[split] if size is None else size
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"`size` must be an integer above 0. Received: size={size!r}")
        return cls.from_pairs(phrasebook(split, size, seed), name=f"sample:{split}")

    @classmethod
    def from_pairs(cls, pairs: Iterable[Pair], name: str = "pairs") -> ParallelCorpus:
        """Pairs from memory.

        Args:
            pairs: (source, target) strings.
            name: what to call the corpus in messages.

        Returns:
            A `ParallelCorpus`.
        """
        held = list(pairs)
        for pair in held:
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
                raise ValueError(f"`pairs` must hold (source, target) strings. Received: {pair!r}")
        return cls(lambda: held, name=name)

    def __len__(self) -> int:
        """Number of pairs, without the skipped ones."""
        return self._length

    def __iter__(self) -> Iterator[Pair]:
        """All pairs in order, both sides stripped."""
        for source, target in self._read():
            source, target = source.strip(), target.strip()
            if source and target:
                yield source, target

    def sources(self) -> Iterator[str]:
        """All source sentences in order."""
        return (source for source, _ in self)

    def targets(self) -> Iterator[str]:
        """All target sentences in order."""
        return (target for _, target in self)

    def __repr__(self) -> str:
        return f"ParallelCorpus({self.name!r}, {self._length} pairs)"


def _paths(paths: Paths) -> list[str]:
    return [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]


def _read_files(files: list[tuple[str, str]]) -> Iterator[Pair]:
    for source_path, target_path in files:
        source_lines, target_lines = numbered_lines(source_path), numbered_lines(target_path)
        number = 0
        for number, source in source_lines:
            other = next(target_lines, None)
            if other is None:
                count = number + sum(1 for _ in source_lines)
                raise _counts_differ(source_path, count, target_path, number - 1)
            yield decode(source, source_path, number), decode(other[1], target_path, number)
        extra = sum(1 for _ in target_lines)
        if extra:
            raise _counts_differ(source_path, number, target_path, number + extra)


def _counts_differ(source_path: str, source_count: int, target_path: str, target_count: int) -> DataError:
    return DataError(
        f"{source_path} has {source_count} lines but {target_path} has {target_count}: line n of one must translate "
        "line n of the other. Align the files, or give them as one TSV."
    )


def _read_tsv(path: str, source_column: int, target_column: int) -> Iterator[Pair]:
    needed = max(source_column, target_column) + 1
    for number, line in numbered_lines(path):
        columns = decode(line, path, number).split("\t")
        if len(columns) < needed and columns != [""]:
            raise DataError(
                f"{path}, line {number}: has {len(columns)} tab-separated columns, {needed} are needed. Mend the line, "
                "or choose others with source_column and target_column."
            )
        yield (columns[source_column], columns[target_column]) if len(columns) >= needed else ("", "")

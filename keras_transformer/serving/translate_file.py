"""A file translated line by line: in constant memory, written as it goes, and gone on with where it was interrupted."""

from __future__ import annotations

import io
import itertools
import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Protocol

from keras_transformer.data.text_lines import DataError, decode
from keras_transformer.layers.arguments import check_positive
from keras_transformer.progress import Progress
from keras_transformer.serving.hypothesis import Hypothesis
from keras_transformer.serving.partial_file import PartialFile, Stream

logger = logging.getLogger("keras_transformer")

LINES_AT_ONCE = 256  # sorted by length among themselves


class TranslatesTexts(Protocol):
    """A `Translator` or an `ExportedTranslator`."""

    @property
    def fingerprint(self) -> str: ...

    def translate(self, texts: list[str], num_hypotheses: int = 1, batch_size: int = 32) -> list[list[Hypothesis]]: ...


def translate_file(
    translator: TranslatesTexts,
    source: str | os.PathLike[str] | BinaryIO,
    target: str | os.PathLike[str] | BinaryIO,
    num_hypotheses: int = 1,
    scores: bool = False,
    batch_size: int = 32,
) -> int:
    r"""Translates every line of `source` into a line of `target`.

    A line ends at "\n" alone; an empty line stays empty; a byte order mark at the head goes. A target file appears when
    it is complete; until then its lines are in `NAME.partial`, and a call with the same arguments goes on after the
    last of them, if the source begins as it did and the translator is the same. A warning says where lines were cut.

    Args:
        translator: What translates.
        source: A path, or a binary file object such as `sys.stdin.buffer`.
        target: A path, or a binary file object.
        num_hypotheses: n: as many lines for each line of the source, best first.
        scores: Whether each line begins with its score and a tab.
        batch_size: Sentences of a batch, as in `Translator.translate`.

    Returns:
        The number of source lines.

    Raises:
        FileNotFoundError: If there is no source, or no directory for the target.
        FileExistsError: If there is a `NAME.partial` that is not of a translation.
        TypeError: If a file object is one of text.
        ValueError: If a line is not UTF-8 (what comes before is kept, as by any interruption), or what was begun in
            `NAME.partial` was begun with another source or translator, or with other arguments.
    """
    check_positive("num_hypotheses", num_hypotheses)
    check_positive("batch_size", batch_size)
    for each in (source, target):
        if isinstance(each, io.TextIOBase):
            raise TypeError(f"`source` and `target` must be binary, such as `sys.stdin.buffer`. Received: {each!r}")
    lines: BinaryIO
    with ExitStack() as stack:
        if isinstance(source, (str, os.PathLike)):
            lines, name = stack.enter_context(open(source, "rb")), os.fspath(source)
            total = os.fstat(lines.fileno()).st_size
        else:
            lines, total, name = source, None, getattr(source, "name", "source")
            name = "standard input" if name == "<stdin>" else str(name)
        output: Stream
        if isinstance(target, (str, os.PathLike)):
            how = {"num_hypotheses": num_hypotheses, "scores": scores, "translator": translator.fingerprint}
            output = stack.enter_context(PartialFile(Path(target), how, lines, name))
        else:
            output = Stream(target)
        with Progress("translating", total, unit="bytes") as progress:
            progress(output.source_bytes)
            cut: list[int] = []
            while block := list(itertools.islice(lines, LINES_AT_ONCE)):
                texts, error = _decoded(block, name, output.lines)
                rows = translator.translate(texts, num_hypotheses=num_hypotheses, batch_size=batch_size)
                cut += [number for number, row in enumerate(rows, start=output.lines + 1) if row[0].truncated]
                output.write([_line(each, scores) for row in rows for each in row], block[: len(texts)])
                progress(output.source_bytes)
                if error:
                    raise error
        if cut:
            others = f" and {len(cut) - 1} more" if cut[1:] else ""
            logger.warning("%s: line %d%s longer than the translator reads: cut", name, cut[0], others)
        output.complete()
        return output.lines


def _decoded(block: list[bytes], name: str, done: int) -> tuple[list[str], DataError | None]:
    """The lines as text, up to the first that is none; and what is wrong with that."""
    texts: list[str] = []
    for number, line in enumerate(block, start=done + 1):
        try:
            texts.append(decode(line.removesuffix(b"\n"), name, number))
        except DataError as error:
            return texts, error
    return texts, None


def _line(hypothesis: Hypothesis, scores: bool) -> bytes:
    text = " ".join(hypothesis.text.split("\n"))  # one line, whatever was generated
    return (f"{hypothesis.score:.6f}\t{text}\n" if scores else f"{text}\n").encode()

"""A file translated line by line: in constant memory, written as it goes, and gone on with where it was interrupted."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from keras_transformer.data.text_lines import decode
from keras_transformer.layers.arguments import check_positive
from keras_transformer.progress import Progress
from keras_transformer.serving.hypothesis import Hypothesis

LINES_AT_ONCE = 256  # sorted by length among themselves


class TranslatesTexts(Protocol):
    """A `Translator` or an `ExportedTranslator`."""

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
    last of them.

    Args:
        translator: What translates.
        source: A path, or a binary file object such as `sys.stdin.buffer`.
        target: A path, or a binary file object.
        num_hypotheses: n: as many lines for each line of the source, best first.
        scores: Whether each line begins with its score and a tab.
        batch_size: Sentences searched at once.

    Returns:
        The number of source lines.

    Raises:
        FileNotFoundError: If there is no source, or no directory for the target.
        ValueError: If a line is not UTF-8 (what comes before is kept, as by any interruption), or what was begun in
            `NAME.partial` was begun with another source or other arguments.
    """
    check_positive("num_hypotheses", num_hypotheses)
    check_positive("batch_size", batch_size)
    lines: BinaryIO
    with ExitStack() as stack:
        if isinstance(source, (str, os.PathLike)):
            lines, name = stack.enter_context(open(source, "rb")), os.fspath(source)
            total = os.fstat(lines.fileno()).st_size
        else:
            lines, total, name = source, None, getattr(source, "name", "source")
            name = "standard input" if name == "<stdin>" else str(name)
        if isinstance(target, (str, os.PathLike)):
            check_target(Path(target))
            begun = {"source_bytes": total, "num_hypotheses": num_hypotheses, "scores": scores}
            output, done = _open_partial(stack, Path(target), begun, num_hypotheses)
        else:
            output, done = target, 0
        read = sum(len(line) for line in itertools.islice(lines, done))
        with Progress("translating", total, unit="bytes") as progress:
            progress(read)
            while block := list(itertools.islice(lines, LINES_AT_ONCE)):
                texts = [decode(line.removesuffix(b"\n"), name, done + n) for n, line in enumerate(block, start=1)]
                for hypotheses in translator.translate(texts, num_hypotheses=num_hypotheses, batch_size=batch_size):
                    output.writelines(_line(hypothesis, scores) for hypothesis in hypotheses)
                output.flush()
                done, read = done + len(block), read + sum(map(len, block))
                progress(read)
    if isinstance(target, (str, os.PathLike)):
        _partial(Path(target)).replace(target)
        _settings_of(Path(target)).unlink()
    return done


def check_target(target: Path) -> None:
    """Raises an OSError if no file can come to be there."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: no such directory: {target.parent}; make it first.")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: a directory; give a file to write to.")


def _line(hypothesis: Hypothesis, scores: bool) -> bytes:
    text = " ".join(hypothesis.text.split("\n"))  # one line, whatever was generated
    return (f"{hypothesis.score:.6f}\t{text}\n" if scores else f"{text}\n").encode()


def _open_partial(stack: ExitStack, target: Path, begun: dict[str, Any], num_hypotheses: int) -> tuple[BinaryIO, int]:
    """The file to append to, and how many source lines it holds already."""
    partial, settings = _partial(target), _settings_of(target)
    done = 0
    if partial.exists() and partial.stat().st_size and settings.exists():
        before = json.loads(settings.read_text(encoding="utf-8"))
        different = [name for name in begun if before.get(name) != begun[name]]
        if different:
            raise ValueError(
                f"{partial} was begun with {', '.join(f'{name}={before.get(name)}' for name in different)}, not "
                f"{', '.join(f'{name}={begun[name]}' for name in different)}: remove it, or write to another file."
            )
        done = _keep_whole_lines(partial, num_hypotheses)
    else:
        partial.unlink(missing_ok=True)
        settings.write_text(json.dumps(begun) + "\n", encoding="utf-8")
    return stack.enter_context(open(partial, "ab")), done


def _keep_whole_lines(partial: Path, num_hypotheses: int) -> int:
    """Cuts off what does not belong to a complete source line; the number of complete ones."""
    with partial.open("r+b") as file:
        ends = _line_ends(file)
        whole, end = 0, 0
        for number, position in enumerate(ends, start=1):
            if number % num_hypotheses == 0:
                whole, end = number // num_hypotheses, position
        file.truncate(end)
    return whole


def _line_ends(file: Iterable[bytes]) -> Iterator[int]:
    position = 0
    for line in file:
        position += len(line)
        if line.endswith(b"\n"):
            yield position


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _settings_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial.json")

"""`keras-transformer translate`: standard input to standard output, one line in, one line out."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

TERMINATED = 130  # what a shell gives for Ctrl-C


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit status: 0, or 1 after one line on standard error."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.error("no command given; the command there is: keras-transformer translate")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        return _translate(args)
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"keras-transformer: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        rest = f": start it again, and {args.output} goes on where it was" if args.output else ""
        print(f"keras-transformer: interrupted{rest}", file=sys.stderr)
        return TERMINATED


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="keras-transformer", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    translate = commands.add_parser("translate", help="translate lines of text", description=__doc__)
    translate.add_argument(
        "run_or_export", type=Path, help="a run's directory, a saved translator, or an export (base or version)"
    )
    translate.add_argument("file", nargs="?", type=Path, help="lines to translate; standard input if not given")
    translate.add_argument("--output", "-o", type=Path, help="write here; standard output if not given")
    translate.add_argument("--num-beams", type=_positive, help="1 is greedy; not for an export, where it is fixed")
    translate.add_argument("--nbest", type=_positive, default=1, help="lines for each line (default: %(default)s)")
    translate.add_argument("--scores", action="store_true", help="begin each line with its score and a tab")
    translate.add_argument("--batch-size", type=_positive, default=32, help="sentences a batch (default: %(default)s)")
    translate.add_argument("--jit-compile", action="store_true", help="compile the search with XLA; not for an export")
    return parser


def _translate(args: argparse.Namespace) -> int:
    from keras_transformer.serving.partial_file import check_target
    from keras_transformer.serving.translate_file import translate_file

    if args.file is not None and not args.file.is_file():
        what = "a directory" if args.file.is_dir() else "not a regular file" if args.file.exists() else "no such file"
        raise OSError(f"{args.file}: {what}; give a file with a sentence a line, or pipe lines in.")
    if args.output is not None:
        check_target(args.output)  # before the seconds that loading takes
    translator = _load(args)
    translate_file(
        translator,
        sys.stdin.buffer if args.file is None else args.file,
        sys.stdout.buffer if args.output is None else args.output,
        num_hypotheses=args.nbest,
        scores=args.scores,
        batch_size=args.batch_size,
    )
    return 0


def _load(args: argparse.Namespace) -> Any:
    """A `Translator` or an `ExportedTranslator`, by what is in the directory."""
    directory: Path = args.run_or_export
    saved = [path for path in (directory, directory / "translator") if (path / "translator.json").is_file()]
    if saved:
        from keras_transformer.serving.translator import Translator

        if args.num_beams is not None and args.nbest > args.num_beams:
            raise ValueError(
                f"--nbest {args.nbest} needs as many beams: give --num-beams {args.nbest} or more, or leave it out."
            )
        translator = Translator.load(saved[0])
        translator.num_beams = args.num_beams or max(translator.num_beams, args.nbest)
        translator.jit_compile = args.jit_compile
        return translator
    from keras_transformer.serving.exported_translator import ExportedTranslator, find_export

    try:
        export = find_export(directory)
    except FileNotFoundError as error:
        if directory.is_dir():
            message = f"{directory}: no translator here; give a run's directory, its translator/, or an export."
        else:
            what = "not a directory" if directory.exists() else f"no such directory (now in {Path.cwd()})"
            message = f"{directory}: {what}; give a run, its translator, or an export."
        raise FileNotFoundError(message) from error
    if args.num_beams is not None or args.jit_compile:
        raise ValueError(f"{export} is an export: its search is fixed; leave out --num-beams and --jit-compile.")
    exported = ExportedTranslator(export)
    most = exported.num_hypotheses
    if args.nbest > most:
        raise ValueError(f"--nbest {args.nbest}: {export} gives {most} at most; give --nbest {most} or less.")
    return exported


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

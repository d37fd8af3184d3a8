"""The text that `train_pt_en.py` trains on: the built-in sample or the reader's own."""

import argparse
from typing import NamedTuple

import keras_transformer as kt


class Corpora(NamedTuple):
    """Three sets of sentence pairs that have no pair in common."""

    train: kt.ParallelCorpus
    validation: kt.ParallelCorpus
    test: kt.ParallelCorpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line's group "text"."""
    text = parser.add_argument_group("text (default: the built-in, synthetic sample)")
    text.add_argument("--source-file", metavar="FILE", help="source sentences, one a line; .gz is read as is")
    text.add_argument("--target-file", metavar="FILE", help="their translations, line by line")
    text.add_argument("--tsv", metavar="FILE", help="instead: source, tab, target on each line")
    text.add_argument("--tfds", metavar="NAME", help="instead: a data set of TensorFlow Datasets")
    for name in ("validation", "test"):
        for side in ("source", "target"):
            text.add_argument(f"--{name}-{side}-file", metavar="FILE", help=f"{side} sentences to {name} on")
    text.add_argument("--held-out", type=int, default=500, help="pairs to validate and to test on, if no file is given")
    text.add_argument("--pairs", type=int, default=40_000, help="pairs of the built-in sample to train on")
    text.add_argument("--vocabulary-size", type=int, default=2_000, help="pieces of the tokenizer")
    text.add_argument("--max-length", type=int, default=64, help="longest sentence to train on, in pieces")


def load_corpora(args: argparse.Namespace) -> Corpora:
    """The built-in sample, or the reader's files; what is not given to validate and test is held out."""
    check_files(args)
    if args.source_file:
        whole = kt.ParallelCorpus.from_files(args.source_file, args.target_file)
    elif args.tsv:
        whole = kt.ParallelCorpus.from_tsv(args.tsv)
    elif args.tfds:
        whole = kt.ParallelCorpus.from_tfds(args.tfds)
    else:
        return Corpora(
            kt.ParallelCorpus.sample("train", args.pairs),
            kt.ParallelCorpus.sample("validation", args.held_out),
            kt.ParallelCorpus.sample("test", args.held_out),
        )
    given = [
        kt.ParallelCorpus.from_files(source, target) if source and target else None
        for source, target in (
            (args.validation_source_file, args.validation_target_file),
            (args.test_source_file, args.test_target_file),
        )
    ]
    validation, test = given
    if validation is None:
        whole, validation = hold_out(whole, args.held_out, "validation")
    if test is None:
        whole, test = hold_out(whole, args.held_out, "test")
    return Corpora(whole, validation, test)


def check_files(args: argparse.Namespace) -> None:
    """Refuses a file that would be ignored: one side without the other, or a second corpus."""
    for name in ("", "validation-", "test-"):
        sides = [f"--{name}{side}-file" for side in ("source", "target")]
        given = [getattr(args, option[2:].replace("-", "_")) for option in sides]
        if bool(given[0]) != bool(given[1]):
            raise ValueError(f"{sides[0]} and {sides[1]} go together: give both or neither.")
    corpora = {"--source-file": args.source_file, "--tsv": args.tsv, "--tfds": args.tfds}
    chosen = [option for option, value in corpora.items() if value]
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} are two corpora: give one.")
    if not chosen and (args.validation_source_file or args.test_source_file):
        raise ValueError("--validation-source-file and --test-source-file go with --source-file, --tsv or --tfds.")


def hold_out(corpus: kt.ParallelCorpus, size: int, name: str) -> tuple[kt.ParallelCorpus, kt.ParallelCorpus]:
    """Takes about `size` pairs out of a corpus, evenly spread, but never more than a tenth."""
    every = max(10, len(corpus) // size)

    def part(held_out: bool) -> kt.ParallelCorpus:
        return kt.ParallelCorpus(
            lambda: (pair for index, pair in enumerate(corpus) if (index % every == 0) == held_out),
            name=f"{corpus.name} ({name if held_out else 'without ' + name})",
        )

    return part(False), part(True)

"""The directory of a run: what may be written there, and whether it holds a run that goes on."""

import argparse
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import keras_transformer as kt

# A run may go on with others of these.
MAY_DIFFER = ("epochs", "jit_compile", "num_beams", "patience", "resume", "run_directory", "traceback", "wait")


def check_outputs(run_directory: Path) -> None:
    """Makes the run's directory, and finds out before the training what could not be written after it."""
    (run_directory / "export").mkdir(parents=True, exist_ok=True)
    translator, picture = run_directory / "translator", run_directory / "attention.png"
    if translator.exists() and not (translator / "translator.json").is_file():
        raise ValueError(f"{translator} exists and is no saved translator: give another --run-directory.")
    if picture.is_dir():
        raise ValueError(f"{picture} is a directory: give another --run-directory.")


def begin_or_go_on(args: argparse.Namespace, train: kt.ParallelCorpus) -> kt.Tokenizer:
    """Notes what the run is made of, and learns its tokenizer; or finds both, and that they are the same."""
    run_directory = Path(args.run_directory)
    configuration = {name: value for name, value in vars(args).items() if name not in MAY_DIFFER}
    noted, tokenizer_file = run_directory / "run.json", run_directory / "tokenizer.model"
    if not args.resume:
        for old in ("checkpoints", "logs"):
            remove(run_directory / old)
        noted.unlink(missing_ok=True)
    if noted.exists() and tokenizer_file.exists():
        before = read_configuration(noted)
        for name in sorted({*before, *configuration}):
            if before.get(name) != configuration.get(name):
                raise ValueError(
                    f"{run_directory} holds a run with --{name.replace('_', '-')} {before.get(name)}, and now it is "
                    f"{configuration.get(name)}: give another --run-directory, or --no-resume to begin anew there."
                )
        return kt.Tokenizer.load(tokenizer_file)
    tokenizer = learn_tokenizer(args, train)
    tokenizer.save(tokenizer_file)
    unfinished = noted.with_name("run.json.tmp")
    unfinished.write_text(json.dumps(configuration, indent=1), encoding="utf-8")
    os.replace(unfinished, noted)  # there whole, or not at all
    return tokenizer


def remove(directory: Path) -> None:
    """Removes what an earlier run left; what stayed would go on with another tokenizer."""
    if not os.path.lexists(directory):
        return
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise OSError(f"{directory} cannot be removed ({error}): give another --run-directory.") from error


def read_configuration(noted: Path) -> dict[str, Any]:
    """What `begin_or_go_on` wrote."""
    try:
        configuration = json.loads(noted.read_text(encoding="utf-8"))
    except ValueError:
        configuration = None
    if not isinstance(configuration, dict):
        raise ValueError(f"{noted} is damaged: give another --run-directory, or --no-resume to begin anew there.")
    return configuration


def learn_tokenizer(args: argparse.Namespace, train: kt.ParallelCorpus) -> kt.Tokenizer:
    """One vocabulary for both sides; the same text gives the same one."""
    both_sides = itertools.chain.from_iterable(train)
    return kt.Tokenizer.train(both_sides, vocabulary_size=args.vocabulary_size, seed=args.seed)

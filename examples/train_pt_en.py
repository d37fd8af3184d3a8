"""Trains a Portuguese-English Transformer and takes it all the way from text to a SavedModel that translates.

    python examples/train_pt_en.py                                       # the built-in, synthetic sample: minutes
    python examples/train_pt_en.py --source-file train.pt --target-file train.en --preset small --epochs 10

Learns a tokenizer, trains with `model.fit`, measures loss, token accuracy, BLEU and exact match on sentences that
training never saw, translates a few of them, draws where the heads looked, exports the SavedModel, and has it loaded
and tried by a fresh process that knows nothing of this package.
"""

import argparse
import itertools
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's notes on the machine, not on the text

import keras
from sacrebleu.metrics import BLEU

import keras_transformer as kt

FRESH_PROCESS = """
import json, sys
import tensorflow as tf, tensorflow_text  # TF-Text brings the SentencePiece ops
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = served(text=tf.constant(json.load(sys.stdin)))
print(json.dumps([text.decode() for text in outputs["translation"].numpy()]))
"""


class Corpora(NamedTuple):
    """Three sets of sentence pairs that have no pair in common."""

    train: kt.ParallelCorpus
    validation: kt.ParallelCorpus
    test: kt.ParallelCorpus


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the process's exit status: 2 if the input is at fault."""
    args = parse(arguments)
    report_progress()
    try:
        run(args)
    except KeyboardInterrupt:
        print("train_pt_en: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        if args.traceback:
            raise
        print(f"train_pt_en: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace) -> None:
    """The whole way, step by step."""
    for name in ("batch_tokens", "epochs", "held_out", "max_length", "num_beams", "pairs", "warmup_steps"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be 1 or more. Received: {getattr(args, name)}")
    run_directory = Path(args.run_directory)
    check_outputs(run_directory)
    began = time.monotonic()
    keras.utils.set_random_seed(args.seed)
    corpora = load_corpora(args)
    print(f"pairs: {len(corpora.train)} to train, {len(corpora.validation)} to validate, {len(corpora.test)} to test")

    both_sides = itertools.chain.from_iterable(corpora.train)
    tokenizer = kt.Tokenizer.train(both_sides, vocabulary_size=args.vocabulary_size, seed=args.seed)
    model = train(args, corpora, tokenizer)

    translator = kt.Translator(model, tokenizer, num_beams=args.num_beams)
    translator.save(run_directory / "translator")  # first of all: what follows can be done again
    measure(args, translator, corpora.test)
    sentences = list(itertools.islice(corpora.test.sources(), 5))
    translations = show(translator, corpora.test, sentences)
    kt.plot_attention(translator.attention(sentences[0])).savefig(run_directory / "attention.png", dpi=150)

    export = translator.export(run_directory / "export", sentences=sentences)
    if translate_in_fresh_process(export, sentences) != translations:
        raise RuntimeError(f"{export} translates otherwise than the model it was made from.")
    print(f"\n{export}: a fresh process with TensorFlow and TF-Text alone gives the same {len(sentences)} texts.")
    print(f"Done in {time.monotonic() - began:.0f} s. What next:")
    print(f"  picture        {run_directory / 'attention.png'}")
    print(f"  TensorBoard    {sys.executable} -m tensorboard.main --logdir {run_directory / 'logs'}")
    print(f'  in Python      kt.Translator.load("{run_directory / "translator"}")(["..."])')
    print(f"  serving        tensorflow_model_server --model_base_path={export.parent.resolve()} --rest_api_port=8501")
    print(f"  your own text  {sys.executable} {sys.argv[0]} --source-file FILE --target-file FILE --preset small")


def check_outputs(run_directory: Path) -> None:
    """Makes the run's directory, and finds out before the training what could not be written after it."""
    (run_directory / "export").mkdir(parents=True, exist_ok=True)
    translator, picture = run_directory / "translator", run_directory / "attention.png"
    if translator.exists() and not (translator / "translator.json").is_file():
        raise ValueError(f"{translator} exists and is no saved translator: give another --run-directory.")
    if picture.is_dir():
        raise ValueError(f"{picture} is a directory: give another --run-directory.")


def report_progress() -> None:
    """Shows what the package says of the data, and keeps TensorFlow's own log to its errors."""
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    package = logging.getLogger("keras_transformer")
    package.setLevel(logging.INFO)
    package.handlers = [logging.StreamHandler(sys.stdout)]


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


def train(args: argparse.Namespace, corpora: Corpora, tokenizer: kt.Tokenizer) -> kt.Transformer:
    """Compiles and fits a model; the weights of the epoch with the best validation loss are kept."""
    options = {"batch_tokens": args.batch_tokens, "max_length": args.max_length, "seed": args.seed}
    dataset = kt.make_dataset(corpora.train, tokenizer, **options)
    validation = kt.make_dataset(corpora.validation, tokenizer, shuffle=False, **options)
    model = kt.Transformer.from_preset(
        args.preset,
        source_vocabulary_size=tokenizer.vocabulary_size,
        normalize_first=args.normalize_first,
        dropout=args.dropout,
        seed=args.seed,
    )
    model.compile(
        optimizer=kt.transformer_optimizer(model.config["d_model"], args.warmup_steps, args.learning_rate_scale),
        loss=kt.SmoothedCrossentropy(args.label_smoothing),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=args.jit_compile,
    )
    logs = Path(args.run_directory) / "logs"
    model.fit(
        dataset,
        epochs=args.epochs,
        validation_data=validation,
        shuffle=False,  # the dataset draws its own order
        callbacks=[
            keras.callbacks.TensorBoard(logs, update_freq=50, write_graph=False, profile_batch=0),
            keras.callbacks.EarlyStopping("val_loss", patience=args.epochs, restore_best_weights=True),
        ],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    print(f"{model.count_params():,} parameters, trained for {int(model.optimizer.iterations)} updates")
    return model


def measure(args: argparse.Namespace, translator: kt.Translator, test: kt.ParallelCorpus) -> None:
    """Prints loss, token accuracy, BLEU and exact match on the test sentences."""
    dataset = kt.make_dataset(
        test, translator.source_tokenizer, shuffle=False, batch_tokens=args.batch_tokens, max_length=args.max_length
    )
    figures = translator.model.evaluate(dataset, verbose=0, return_dict=True)
    references = list(test.targets())
    began = time.monotonic()
    translations = translator(list(test.sources()))
    seconds = time.monotonic() - began
    bleu = BLEU()
    score = bleu.corpus_score(translations, [references])
    exact = sum(map(str.__eq__, translations, references)) / len(references)
    print(f"\ntest, {len(references)} sentences that training never saw:")
    print(f"  loss            {figures['loss']:.4f}")
    print(f"  token accuracy  {figures['token_accuracy']:.4f}")
    print(f"  perplexity      {figures['perplexity']:.4f}")
    print(f"  BLEU            {score.score:.2f}  ({bleu.get_signature()})")
    print(f"  exact match     {exact:.1%}")
    print(f"  translated with {translator.num_beams} beams at {len(references) / seconds:.0f} sentences a second")


def show(translator: kt.Translator, test: kt.ParallelCorpus, sentences: list[str]) -> list[str]:
    """Prints some sentences beside their translations and references."""
    translations = translator(sentences)
    for source, translation, reference in zip(sentences, translations, test.targets(), strict=False):
        print(f"\n  source     {source}\n  translated {translation}\n  reference  {reference}")
    return translations


def translate_in_fresh_process(export: Path, sentences: list[str]) -> list[str]:
    """What the SavedModel gives where there is no keras_transformer."""
    command = [sys.executable, "-c", FRESH_PROCESS, str(export)]
    asked = json.dumps(sentences)
    output = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True).stdout
    translations: list[str] = json.loads(output.strip().splitlines()[-1])
    return translations


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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

    training = parser.add_argument_group("training")
    training.add_argument("--preset", default="tiny", help="the model's size: tiny, small, base or big")
    training.add_argument("--epochs", type=int, default=4)
    training.add_argument("--batch-tokens", type=int, default=2_048, help="rows x longest side of a batch, at most")
    training.add_argument(
        "--normalize-first",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="pre-norm, which needs less warm-up; the paper's is --no-normalize-first",
    )
    training.add_argument("--dropout", type=float, default=0.1)
    training.add_argument("--label-smoothing", type=float, default=0.1)
    training.add_argument("--warmup-steps", type=int, default=400, help="updates until the rate is at its highest")
    training.add_argument("--learning-rate-scale", type=float, default=1.0, help="factor of the paper's rate")
    training.add_argument("--jit-compile", action="store_true", help="compile the training step with XLA")
    training.add_argument("--seed", type=int, default=1)

    output = parser.add_argument_group("output")
    output.add_argument("--num-beams", type=int, default=4)
    output.add_argument("--run-directory", default="runs/pt_en", metavar="DIR")
    output.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

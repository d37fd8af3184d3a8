"""Trains a Portuguese-English Transformer and takes it all the way from text to a SavedModel that translates.

    python examples/train_pt_en.py                                       # the built-in, synthetic sample: minutes
    python examples/train_pt_en.py --source-file train.pt --target-file train.en --preset small --epochs 10

Learns a tokenizer, trains with `model.fit`, measures loss, token accuracy, BLEU and exact match on sentences that
training never saw, translates a few of them, draws where the heads looked, exports the SavedModel, and has it loaded
and tried by a fresh process that knows nothing of this package. Started again in the same run directory, it goes on
where it was interrupted.
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

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's notes on the machine, not on the text

import corpora
import keras
import tensorflow as tf
from run_directory import begin_or_go_on, check_outputs, learn_tokenizer
from sacrebleu.metrics import BLEU

import keras_transformer as kt
from keras_transformer.training.workers import Workers

STRATEGIES = "train on one device, on all GPUs of this machine, or on the machines that TF_CONFIG names"

FRESH_PROCESS = """
import json, sys
import tensorflow as tf, tensorflow_text  # TF-Text brings the SentencePiece ops
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = served(text=tf.constant(json.load(sys.stdin)))
print(json.dumps([text.decode() for text in outputs["translation"].numpy()]))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the process's exit status: 2 if the input is at fault."""
    args = parse(arguments)
    report_progress()
    try:
        run(args)
    except KeyboardInterrupt:
        print("train_pt_en: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, RuntimeError, OSError, ImportError, FloatingPointError) as error:
        if args.traceback:
            raise
        print(f"train_pt_en: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace) -> None:
    """The whole way, step by step."""
    for name in (
        "accumulate",
        "batch_tokens",
        "epochs",
        "held_out",
        "max_length",
        "num_beams",
        "pairs",
        "patience",
        "warmup_steps",
    ):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be 1 or more. Received: {value}")
    run_directory = Path(args.run_directory)
    check_outputs(run_directory)
    began = time.monotonic()
    keras.utils.set_random_seed(args.seed)
    strategy = make_strategy(args)
    text = corpora.load_corpora(args)
    print(f"pairs: {len(text.train)} to train, {len(text.validation)} to validate, {len(text.test)} to test")

    tokenizer = (begin_or_go_on if is_chief(strategy) else learn_tokenizer)(args, text.train)
    model = train(args, strategy, text, tokenizer)
    if not is_chief(strategy):
        return

    translator = kt.Translator(model, tokenizer, num_beams=args.num_beams)
    translator.save(run_directory / "translator")  # first of all: what follows can be done again
    measure(args, translator, text.test)
    sentences = list(itertools.islice(text.test.sources(), 5))
    translations = show(translator, text.test, sentences)
    kt.plot_attention(translator.attention(sentences[0])).savefig(run_directory / "attention.png", dpi=150)

    export = translator.export(run_directory / "export", warmup=sentences)
    if translate_in_fresh_process(export, sentences) != translations:
        raise RuntimeError(f"{export} translates otherwise than the model it was made from.")
    print(f"\n{export}: a fresh process with TensorFlow and TF-Text alone gives the same {len(sentences)} texts.")
    print(f"Done in {time.monotonic() - began:.0f} s. What next:")
    print(f"  picture        {run_directory / 'attention.png'}")
    print(f"  TensorBoard    {sys.executable} -m tensorboard.main --logdir {run_directory / 'logs'}")
    print(f'  in Python      kt.Translator.load("{run_directory / "translator"}")(["..."])')
    print(f"  serving        tensorflow_model_server --model_base_path={export.parent.resolve()} --rest_api_port=8501")
    print(f"  your own text  {sys.executable} {sys.argv[0]} --source-file FILE --target-file FILE --preset small")


def make_strategy(args: argparse.Namespace) -> tf.distribute.Strategy:
    """Where to train: one device, all GPUs of this machine, or all machines that TF_CONFIG names."""
    if args.strategy == "mirrored":
        return tf.distribute.MirroredStrategy()
    if args.strategy == "multiworker":
        return kt.multi_worker_strategy(timeout_seconds=args.wait)
    return tf.distribute.get_strategy()


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes, as it is for the package's callbacks."""
    return Workers(strategy).is_chief


def report_progress() -> None:
    """Shows what the package says of the data, and keeps TensorFlow's own log to its errors."""
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    package = logging.getLogger("keras_transformer")
    package.setLevel(logging.INFO)
    package.handlers = [logging.StreamHandler(sys.stdout)]


def train(
    args: argparse.Namespace, strategy: tf.distribute.Strategy, text: corpora.Corpora, tokenizer: kt.Tokenizer
) -> kt.Transformer:
    """Compiles and fits a model; the weights of the epoch with the best validation loss are kept."""
    options = {
        "batch_tokens": args.batch_tokens,
        "max_length": args.max_length,
        "seed": args.seed,
        "rows_multiple_of": strategy.num_replicas_in_sync,
    }
    dataset = kt.make_dataset(text.train, tokenizer, **options)
    validation = kt.make_dataset(text.validation, tokenizer, shuffle=False, **options)
    with strategy.scope():
        model = make_model(args, tokenizer)
    run_directory = Path(args.run_directory)
    watcher, watched = kt.Translator(model, tokenizer), list(itertools.islice(text.validation, 3))
    model.fit(
        dataset,
        epochs=args.epochs,
        validation_data=validation,
        callbacks=[
            kt.StopOnNaN(dataset),
            keras.callbacks.EarlyStopping("val_loss", patience=args.patience or args.epochs, restore_best_weights=True),
            kt.TrainingCurves(run_directory / "logs"),
            # 5 % of the time and not the default's 2: a training of minutes would have one picture, at its end.
            kt.AttentionTensorBoard(watcher, watched, run_directory / "logs", every=100, max_share=0.05),
            kt.Checkpointing(run_directory / "checkpoints", every_minutes=5, monitor="val_loss"),
        ],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    updates = model.training_statistics()["updates"]
    print(f"{model.count_params():,} parameters, trained for {updates} updates")
    if args.strategy == "none":
        return model
    trained, model = model, make_model(args, tokenizer)  # one copy, outside the strategy, is what translates
    model.set_weights(trained.get_weights())
    return model


def make_model(args: argparse.Namespace, tokenizer: kt.Tokenizer) -> kt.Transformer:
    """A compiled model, random weights."""
    model = kt.Transformer.from_preset(
        args.preset,
        source_vocabulary_size=tokenizer.vocabulary_size,
        normalize_first=args.normalize_first,
        dropout=args.dropout,
        seed=args.seed,
        dtype="float32" if args.mixed_precision == "none" else f"mixed_{args.mixed_precision}",
    )
    model.build()
    model.compile(
        optimizer=kt.transformer_optimizer(
            model.config["d_model"],
            args.warmup_steps,
            args.learning_rate_scale,
            gradient_accumulation_steps=args.accumulate if args.accumulate > 1 else None,
        ),
        loss=kt.SmoothedCrossentropy(args.label_smoothing),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=args.jit_compile,
    )
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
    """What the SavedModel gives where there is no keras_transformer, on the CPU: a GPU's memory is this process'."""
    command = [sys.executable, "-c", FRESH_PROCESS, str(export)]
    asked, environment = json.dumps(sentences), {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    output = subprocess.run(command, input=asked, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    translations: list[str] = json.loads(output.strip().splitlines()[-1])
    return translations


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    corpora.add_arguments(parser)
    training = parser.add_argument_group("training")
    training.add_argument("--preset", default="tiny", help="the model's size: tiny, small, base or big")
    training.add_argument("--epochs", type=int, default=4)
    training.add_argument(
        "--patience", type=int, metavar="N", help="end after N epochs without a better validation loss"
    )
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
    training.add_argument("--accumulate", type=int, default=1, metavar="N", help="batches that make one update")
    training.add_argument("--strategy", choices=("none", "mirrored", "multiworker"), default="none", help=STRATEGIES)
    training.add_argument("--wait", type=float, default=300.0, help="seconds that a worker waits for the others")
    training.add_argument(
        "--jit-compile",
        action=argparse.BooleanOptionalAction,
        default="auto",
        help="compile each replica's step with XLA; if not given, where there is a GPU",
    )
    training.add_argument("--mixed-precision", choices=("none", "bfloat16", "float16"), default="none")
    training.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on with the run that the run directory holds; --no-resume begins anew there",
    )
    training.add_argument("--seed", type=int, default=1)

    output = parser.add_argument_group("output")
    output.add_argument("--num-beams", type=int, default=4)
    output.add_argument("--run-directory", default="runs/pt_en", metavar="DIR")
    output.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

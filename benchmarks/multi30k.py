"""Multi30k, lowercased and tokenized, at the size and settings of Wu et al. (ACL 2021), who publish its test BLEU.

    python benchmarks/multi30k.py DIRECTORY --target de --run-directory runs/multi30k_de      # published: 41.0
    python benchmarks/multi30k.py DIRECTORY --target fr --run-directory runs/multi30k_fr      # published: 61.8

DIRECTORY holds train, val and test_2016_flickr as `<name>.<language>.gz`, one sentence a line: the files
`*.lc.norm.tok.*` of https://github.com/multi30k/dataset, data/task1/tok. Everything is chosen on val; test is
translated once, with the last checkpoints averaged. Started again, an interrupted run goes on.
"""

import argparse
import gzip
import itertools
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from sacrebleu.metrics import BLEU

import keras_transformer as kt

SIZES: dict[str, Any] = {
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "dropout": 0.3,
}
WARMUP_STEPS = 2000
HIGHEST_RATE = 0.005
LENGTH_PENALTIES = (0.6, 1.0, 1.4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--target", choices=("de", "fr"), default="de", help="translate English into this")
    parser.add_argument("--run-directory", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=8000, help="about how many (default: %(default)s)")
    parser.add_argument("--average", type=int, default=10, help="checkpoints to average, one an epoch")
    parser.add_argument("--normalize-first", action=argparse.BooleanOptionalAction, default=True, help="pre-norm")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--jit-compile", action=argparse.BooleanOptionalAction, default="auto")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.getLogger("keras_transformer").addHandler(logging.StreamHandler())
    logging.getLogger("keras_transformer").setLevel(logging.INFO)
    began = time.monotonic()
    keras.utils.set_random_seed(args.seed)
    model, tokenizer, updates = train(args)
    trained = time.monotonic() - began
    averaged = kt.average_checkpoints(args.run_directory / "checkpoints", model, last=args.average)
    report(args, model, tokenizer, {"updates": updates, "averaged": len(averaged), "train_seconds": round(trained)})


def corpus(args: argparse.Namespace, name: str) -> kt.ParallelCorpus:
    return kt.ParallelCorpus.from_files(*(args.directory / f"{name}.{side}.gz" for side in ("en", args.target)))


def train(args: argparse.Namespace) -> tuple[kt.Transformer, kt.Tokenizer, int]:
    """The model after its last update, its tokenizer, and the number of updates."""
    text = corpus(args, "train")
    tokenizer = kt.Tokenizer.train(
        itertools.chain.from_iterable(text), vocabulary_size=10_000, model_type="bpe", character_coverage=1.0
    )
    dataset = kt.make_dataset(text, tokenizer, batch_tokens=4096, max_length=100, seed=args.seed)
    validation = kt.make_dataset(corpus(args, "val"), tokenizer, batch_tokens=4096, max_length=100, shuffle=False)
    model = kt.Transformer(
        tokenizer.vocabulary_size, **SIZES, normalize_first=args.normalize_first, seed=args.seed, dtype=args.dtype
    )
    model.build()
    highest = (SIZES["d_model"] * WARMUP_STEPS) ** -0.5  # of the paper's schedule
    model.compile(
        kt.transformer_optimizer(SIZES["d_model"], WARMUP_STEPS, scale=HIGHEST_RATE / highest),
        loss=kt.SmoothedCrossentropy(0.1),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=args.jit_compile,
    )
    model.fit(
        dataset,
        epochs=max(1, round(args.updates / len(dataset))),
        validation_data=validation,
        callbacks=[
            kt.StopOnNaN(dataset),
            kt.TrainingCurves(args.run_directory / "logs"),
            kt.Checkpointing(args.run_directory / "checkpoints", every_minutes=5, keep=args.average),
        ],
        verbose=2,
    )
    return model, tokenizer, int(model.training_statistics()["updates"])


def report(args: argparse.Namespace, model: kt.Transformer, tokenizer: kt.Tokenizer, figures: dict) -> None:
    """Chooses the length penalty on val, translates test with it, and prints one line of JSON."""
    bleu = BLEU(tokenize="none", force=True)  # the text is tokenized

    def score(name: str, length_penalty: float) -> float:
        translate = kt.Translator(model, tokenizer, num_beams=5, length_penalty=length_penalty)
        sources, references = (lines(args.directory / f"{name}.{side}.gz") for side in ("en", args.target))
        return round(bleu.corpus_score(translate(sources), [references]).score, 2)

    on_val = {penalty: score("val", penalty) for penalty in LENGTH_PENALTIES}
    best = max(on_val, key=lambda penalty: on_val[penalty])
    figures |= {"val_bleu": on_val, "length_penalty": best, "test_2016_bleu": score("test_2016_flickr", best)}
    print(json.dumps({"target": args.target, **figures, "signature": str(bleu.get_signature())}))


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


if __name__ == "__main__":
    main()

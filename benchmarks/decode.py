"""Speed of decoding: output tokens a second, latency, first call and memory, beside the speed of matrix products here.

Random weights, sources of 32 tokens, 32 steps whatever the model would like (the end may not come earlier):

    python benchmarks/decode.py --size small --batch 32 --beams 4                  # plain graph, as a server runs it
    python benchmarks/decode.py --size small --batch 32 --beams 4 --jit-compile    # XLA
    python benchmarks/decode.py --size small --batch 1 --beams 1 --threads 1       # one thread is faster for one row
    python benchmarks/decode.py --size small --at-once 2 --threads 1               # two batches, a core each
    python benchmarks/decode.py --size base --batch 32 --beams 4 --dtype bfloat16
    python benchmarks/decode.py --size small --batch 32 --beams 4 --steps 256      # longer translations

Or a trained translator, or an export of one, on a file, tokenizing included:

    python benchmarks/decode.py --translator runs/pt_en/translator --file sentences.txt --beams 4
    python benchmarks/decode.py --translator runs/pt_en/export --file sentences.txt
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.decoding.generate import search_ids
from keras_transformer.models.hypotheses_cache import HypothesesCache
from keras_transformer.serving.exported_translator import ExportedTranslator
from keras_transformer.serving.in_place import InPlaceCache

SIZES = {
    "small": {"d_model": 256, "num_heads": 4, "d_ff": 1024, "layers": 3, "vocabulary_size": 8000},
    "base": {"d_model": 512, "num_heads": 8, "d_ff": 2048, "layers": 6, "vocabulary_size": 32000},
}
SOURCE_LENGTH = 32


def product_rate(seconds: float = 0.5) -> float:
    """Median floating-point operations a second of NumPy's product of two 1024 x 1024 float32 matrices."""
    matrix = np.random.default_rng(0).random((1024, 1024), dtype="float32")
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        _ = matrix @ matrix
        times.append(time.perf_counter() - start)
    return 2 * 1024**3 / statistics.median(times)


def random_search(args: argparse.Namespace) -> Callable[[], Any]:
    size = SIZES[args.size]
    keras.utils.set_random_seed(0)
    model = kt.Transformer(
        size["vocabulary_size"],
        num_encoder_layers=size["layers"],
        num_decoder_layers=size["layers"],
        d_model=size["d_model"],
        num_heads=size["num_heads"],
        d_ff=size["d_ff"],
        dtype=args.dtype,
    )
    model.build()
    rng = np.random.default_rng(0)
    ids = tf.constant(rng.integers(4, size["vocabulary_size"], (args.batch, SOURCE_LENGTH)).astype("int32"))
    rows = args.batch if args.jit_compile else None

    def search(ids: tf.Tensor) -> tf.Tensor:
        lengths = tf.fill([tf.shape(ids)[0] if rows is None else rows], args.steps)
        cache_class = HypothesesCache if args.jit_compile else InPlaceCache
        return search_ids(model, ids, lengths, args.steps, args.beams, min_lengths=lengths, cache_class=cache_class)[0]

    function = tf.function(
        search,
        input_signature=[tf.TensorSpec([rows, SOURCE_LENGTH if args.jit_compile else None], tf.int32)],
        jit_compile=args.jit_compile,
        autograph=False,
    )

    def call(_: int = 0) -> int:
        found = function(ids).numpy()
        assert (found[:, 0, :-1] > 3).all()  # no end before the last step
        return args.batch * args.steps

    if args.at_once == 1:
        return call
    pool = ThreadPoolExecutor(args.at_once)
    return lambda: sum(pool.map(call, range(args.at_once)))


def file_translation(args: argparse.Namespace) -> Callable[[], Any]:
    lines = args.file.read_text(encoding="utf-8").split("\n")[: args.lines]
    if (args.translator / "translator.json").is_file():
        translator: Any = kt.Translator.load(args.translator)
        translator.num_beams, translator.jit_compile = args.beams, args.jit_compile
        translator = translator if args.dtype == "float32" else translator.astype(args.dtype)
    else:
        translator = ExportedTranslator(args.translator)

    def call() -> int:
        return len(translator.translate(lines, batch_size=args.batch))

    return call


def measure(args: argparse.Namespace) -> dict[str, Any]:
    rates = [product_rate()]
    call = random_search(args) if args.translator is None else file_translation(args)
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    call()
    times: list[float] = []
    done = 0
    end = time.perf_counter() + args.seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        done = call()
        times.append(time.perf_counter() - start)
    rates.append(product_rate())
    latencies = {f"p{share}_ms": round(1000 * float(np.percentile(times, share)), 1) for share in (50, 95, 99)}
    return {
        **{name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()},
        "lines_per_second" if args.translator else "tokens_per_second": round(done / statistics.median(times), 1),
        "calls": len(times),
        **latencies,
        "first_call_seconds": round(first, 2),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "numpy_gflops": round(statistics.median(rates) / 1e9),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="sentences at once (default: %(default)s)")
    parser.add_argument("--beams", type=int, default=4, help="1 is greedy (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=32, help="tokens of a translation (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", help="a Keras dtype policy (default: %(default)s)")
    parser.add_argument("--jit-compile", action="store_true", help="compile the search with XLA")
    parser.add_argument("--threads", type=int, help="of TensorFlow, within an operation")
    parser.add_argument("--at-once", type=int, default=1, help="searches side by side, of random weights")
    parser.add_argument("--seconds", type=float, default=6.0, help="to measure (default: %(default)s)")
    parser.add_argument("--translator", type=Path, help="a saved translator or an export, instead of random weights")
    parser.add_argument("--file", type=Path, help="what it translates, a sentence a line")
    parser.add_argument("--lines", type=int, help="only the first so many")
    args = parser.parse_args()
    if args.threads:
        tf.config.threading.set_intra_op_parallelism_threads(args.threads)
        tf.config.threading.set_inter_op_parallelism_threads(max(args.threads, args.at_once))
    print(json.dumps(measure(args)))


if __name__ == "__main__":
    main()

"""Speed of training: source and target tokens a second in `fit`, beside the speed of matrix products in this process.

Random tokens without padding, dropout 0.1 (of attention weights too), label smoothing 0.1, Adam, tied embeddings:

    python benchmarks/train_step.py --size small --jit-compile
    python benchmarks/train_step.py --size base --steps 7 --dtype mixed_bfloat16
    python benchmarks/train_step.py --size small --jit-compile --strategy mirrored

The share is 3 (forward and backward) * 2 * (weights of matrix products) * (tokens that pass through them), by the
time and by the rate of float32 products of 1024 x 1024 matrices: NumPy's, and TensorFlow's, which may differ by far.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_transformer as kt

SIZES = {
    "small": {"d_model": 256, "num_heads": 4, "d_ff": 1024, "layers": 3, "vocabulary_size": 8000, "batch": 64},
    "base": {"d_model": 512, "num_heads": 8, "d_ff": 2048, "layers": 6, "vocabulary_size": 32000, "batch": 16},
}
LENGTH = 32  # tokens of a source and of a target
FIRST_TOKEN_ID, START_TOKEN_ID = 3, 2
WARM_UP_STEPS = 3


def floating_point_operations(size: dict[str, int]) -> int:
    """Of the matrix products of one training step; attention's own products, softmax and optimizer are not counted."""
    width, hidden, layers = size["d_model"], size["d_ff"], size["layers"]
    source = layers * (4 * width**2 + 2 * width * hidden) + layers * 2 * width**2  # encoder; cross-attention's K and V
    target = layers * (6 * width**2 + 2 * width * hidden) + width * size["vocabulary_size"]
    return 3 * 2 * size["batch"] * LENGTH * (source + target)


def product_rate(multiply: Callable[[], Any], seconds: float = 0.5) -> float:
    """Median floating-point operations a second of a product of two 1024 x 1024 matrices."""
    multiply()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        multiply()
        times.append(time.perf_counter() - start)
    return 2 * 1024**3 / statistics.median(times)


def make_batches(size: dict[str, int]) -> tf.data.Dataset:
    rng = np.random.default_rng(0)
    high = size["vocabulary_size"]
    source = rng.integers(FIRST_TOKEN_ID, high, (size["batch"], LENGTH), dtype="int32")
    target = rng.integers(FIRST_TOKEN_ID, high, (size["batch"], LENGTH + 1), dtype="int32")
    target[:, 0] = START_TOKEN_ID
    batch = {"encoder_token_ids": source, "decoder_token_ids": target[:, :-1]}, target[:, 1:]
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread can hold the end of `fit` back by seconds
    return tf.data.Dataset.from_tensors(batch).cache().repeat().prefetch(2).with_options(options)


def make_model(size: dict[str, int], arguments: argparse.Namespace) -> kt.Transformer:
    model = kt.Transformer(
        size["vocabulary_size"],
        num_encoder_layers=size["layers"],
        num_decoder_layers=size["layers"],
        d_model=size["d_model"],
        num_heads=size["num_heads"],
        d_ff=size["d_ff"],
        dropout=0.1,
        attention_dropout=arguments.attention_dropout,
        dtype=arguments.dtype,
    )
    model.compile(keras.optimizers.Adam(1e-4), kt.SmoothedCrossentropy(0.1), jit_compile=arguments.jit_compile)
    return model


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    size, strategy = SIZES[arguments.size], contextlib.nullcontext()
    if arguments.strategy == "mirrored":
        cpus = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()
    keras.utils.set_random_seed(0)
    matrix = np.random.default_rng(0).random((1024, 1024), dtype="float32")
    tensor, tensor_product = tf.constant(matrix), tf.function(tf.matmul)
    numpy_rates = [product_rate(lambda: matrix @ matrix)]
    tensorflow_rate = product_rate(lambda: tensor_product(tensor, tensor).numpy())
    with strategy:
        model = make_model(size, arguments)
    batches = make_batches(size)

    def seconds_of(steps: int) -> float:
        start = time.perf_counter()
        model.fit(batches, steps_per_epoch=steps, verbose=0)
        return time.perf_counter() - start

    first = seconds_of(1)
    seconds_of(WARM_UP_STEPS)
    times = []
    for _ in range(arguments.runs):
        times.append(seconds_of(arguments.steps) / arguments.steps)
        numpy_rates.append(product_rate(lambda: matrix @ matrix))
    rate, numpy_rate = floating_point_operations(size) / statistics.median(times), statistics.median(numpy_rates)
    tokens = 2 * size["batch"] * LENGTH
    return {
        **vars(arguments),
        "tokens_per_second": round(tokens / statistics.median(times)),
        "runs_tokens_per_second": [round(tokens / seconds) for seconds in times],
        "first_step_seconds": round(first, 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "numpy_gflops": round(numpy_rate / 1e9),
        "tensorflow_gflops": round(tensorflow_rate / 1e9),
        "share": round(rate / numpy_rate, 3),
        "share_of_tensorflow": round(rate / tensorflow_rate, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="(default: %(default)s)")
    parser.add_argument("--dtype", default="float32", help="a Keras dtype policy (default: %(default)s)")
    parser.add_argument("--jit-compile", action=argparse.BooleanOptionalAction, default="auto", help="compile with XLA")
    parser.add_argument("--strategy", choices=["none", "mirrored"], default="none", help="mirrored: 2 logical CPUs")
    parser.add_argument("--attention-dropout", type=float, default=0.1, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="the median of them counts (default: %(default)s)")
    result = measure(parser.parse_args())
    print(json.dumps(result))
    print(
        f"{result['tokens_per_second']} tokens/s, first step {result['first_step_seconds']} s, peak "
        f"{result['peak_megabytes']} MB, {result['share']:.0%} of NumPy's {result['numpy_gflops']} GFLOP/s, "
        f"{result['share_of_tensorflow']:.0%} of TensorFlow's {result['tensorflow_gflops']}"
    )


if __name__ == "__main__":
    main()

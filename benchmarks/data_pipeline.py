"""Time and peak memory from two text files to batches: reading, learning a vocabulary, tokenizing, batching.

Writes a made-up corpus into a temporary folder and runs the whole pipeline on it in one process:

    python benchmarks/data_pipeline.py --pairs 100000
    python benchmarks/data_pipeline.py --pairs 2000000
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from keras_transformer.data.batching import make_dataset
from keras_transformer.data.corpus import ParallelCorpus
from keras_transformer.text.tokenizer import Tokenizer

SYLLABLES = [consonant + vowel for consonant in "bcdfglmnprstv" for vowel in ("a", "e", "i", "o", "u", "ão", "é")]


def write_corpus(directory: Path, pairs: int) -> tuple[Path, Path]:
    """Two files of sentences of 3 to 30 words out of 50,000, frequent and rare ones as in natural text."""
    rng = np.random.default_rng(0)
    paths = directory / "source.txt", directory / "target.txt"
    for path in paths:
        words = np.array(["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(50_000)], object)
        with path.open("w", encoding="utf-8") as file:
            for first in range(0, pairs, 10_000):
                lengths = 3 + np.minimum(rng.geometric(0.1, min(10_000, pairs - first)), 27)
                ranks = np.minimum(rng.zipf(1.3, lengths.sum()), len(words)) - 1
                for sentence in np.split(words[ranks], np.cumsum(lengths)[:-1]):
                    file.write(" ".join(sentence) + ".\n")
    return paths


def peak_megabytes() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Prints how long its body took, and the peak memory after it."""
    start = time.perf_counter()
    yield
    print(f"{name:<46}{time.perf_counter() - start:8.1f} s {peak_megabytes():8.0f} MB peak", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000, help="number of sentence pairs (default: %(default)s)")
    parser.add_argument("--vocabulary-size", type=int, default=8000, help="(default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="(default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        source, target = write_corpus(Path(directory), arguments.pairs)
        size = (source.stat().st_size + target.stat().st_size) / 1e6
        print(f"{arguments.pairs} pairs, {size:.0f} MB of text, {os.cpu_count()} cores")
        print(f"{'imported TensorFlow, wrote the text':<56}{peak_megabytes():8.0f} MB peak")
        with stage("read and checked both files"):
            corpus = ParallelCorpus.from_files(source, target)
        with stage(f"learned a vocabulary of {arguments.vocabulary_size}"):
            sentences = (sentence for pair in corpus for sentence in pair)
            tokenizer = Tokenizer.train(sentences, vocabulary_size=arguments.vocabulary_size)
        with stage("read, tokenized and sorted into buckets"):
            dataset = make_dataset(corpus, tokenizer, batch_tokens=arguments.batch_tokens, cache_directory=directory)
        with stage(f"read one epoch of {len(dataset)} batches"):
            pairs = sum(int(np.count_nonzero(weights[:, 0])) for _, _, weights in dataset)
        assert pairs + dataset.report.dropped == arguments.pairs
        print(dataset.report)


if __name__ == "__main__":
    main()

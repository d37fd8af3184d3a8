"""How much of the batches is padding, for how many shapes: what XLA compiles against what every epoch computes.

python benchmarks/padding.py SOURCE TARGET [--batch-tokens 4096] [--vocabulary-size 10000]
"""

import argparse
import itertools

import numpy as np

import keras_transformer as kt
from keras_transformer.data.buckets import MAX_SHAPES, make_buckets
from keras_transformer.data.token_store import tokenize_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--vocabulary-size", type=int, default=10_000)
    args = parser.parse_args()
    corpus = kt.ParallelCorpus.from_files(args.source, args.target)
    tokenizer = kt.Tokenizer.train(itertools.chain.from_iterable(corpus), vocabulary_size=args.vocabulary_size)
    source, target, *_ = tokenize_pairs(corpus, tokenizer, tokenizer, args.batch_tokens, None)
    longest = np.maximum(source.lengths(), target.lengths()) + 1
    tokens = int(source.lengths().sum() + target.lengths().sum()) + 2 * len(longest)
    print(f"{len(longest)} pairs; each at its own longer side's length: {1 - tokens / (2 * longest.sum()):.1%} padding")
    seen = set()
    for max_shapes in range(1, MAX_SHAPES + 1):
        buckets = make_buckets(longest, args.batch_tokens, int(longest.max()), 1, max_shapes=max_shapes)
        if len(buckets) not in seen:
            seen.add(len(buckets))
            cells = 2 * sum(bucket.cells for bucket in buckets)
            batches = sum(bucket.batches for bucket in buckets)
            print(f"{len(buckets):2} shapes, {batches} batches: {1 - tokens / cells:.1%} padding")


if __name__ == "__main__":
    main()

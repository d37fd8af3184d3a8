"""The built-in sample corpus: a synthetic Portuguese-English phrasebook, made from a small grammar.

No sentence here was ever said by anybody. They are put together by rule from the words and constructions in
`grammar/`, so a model that does well on them has learned this grammar, not Portuguese. What is real: gender and number
agreement, verb forms, contractions, dropped subjects and English do-support, and that every Portuguese sentence has
exactly one English one.

How the corpus is cut. A *content pair* is, as lemmas, a verb with its object (`comprar`, `livro`) or, where it has
none, with the place where it happens or leads (`nadar`, `rio`), or an adjective with the noun that it describes, beside
it or across a verb (`vermelho`, `livro`). Subjects and free adverbials make no pair with the verb. SHA-256 of
`verb+noun` or `adjective+noun` puts about one pair in 25 into test and one in 25 into validation. A sentence belongs
to test if it holds a test pair, else to validation if it holds a validation pair, else to train: training never sees
the two words of a held-out pair in that relation. Sentences without a pair (dates, times, ages, names) are cut the same
way by the hash of the whole Portuguese sentence.
"""

import functools
import hashlib
import random
from collections.abc import Iterator

from keras_transformer.data.grammar import sayings, statements  # noqa: F401 (importing them registers their frames)
from keras_transformer.data.grammar.clauses import Pair
from keras_transformer.data.grammar.frames import FRAMES, Frame

SPLITS = ("train", "validation", "test")
LARGEST = {"train": 1_000_000, "validation": 25_000, "test": 25_000}
__all__ = ["SPLITS", "count_sentences", "phrasebook"]


@functools.cache
def _split_of_text(text: str) -> str:
    share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 25
    return {0: "test", 1: "validation"}.get(share, "train")


@functools.cache
def _split_of_pair(pair: Pair) -> str:
    return _split_of_text("+".join(pair))


def split_of(portuguese: str, pairs: tuple[Pair, ...]) -> str:
    """The split that a sentence with these content pairs belongs to."""
    if not pairs:
        return _split_of_text.__wrapped__(portuguese)
    found = [_split_of_pair(pair) for pair in pairs]
    return "test" if "test" in found else "validation" if "validation" in found else "train"


def _draws(rng: random.Random, split: str) -> Iterator[tuple[Frame, tuple[str, str], tuple[Pair, ...]]]:
    """Sentences of a split without end, each with its frame and its content pairs; some come again."""
    weighted = [frame for frame in FRAMES for _ in range(frame.weight)]
    while True:
        frame = weighted[int(rng.random() * len(weighted))]
        drawn = [slot.draw(rng) for slot in frame.slots]
        pairs = tuple(pair for _, found in drawn for pair in found)
        if pairs and split_of("", pairs) != split:
            continue
        text = frame.render(*(option for option, _ in drawn))
        if pairs or split_of(text[0], pairs) == split:
            yield frame, text, pairs


def phrasebook(split: str, size: int, seed: int = 0) -> list[tuple[str, str]]:
    """`size` distinct Portuguese-English sentence pairs of a synthetic corpus.

    Args:
        split: one of `SPLITS`; the module's docstring says how they are cut.
        size: how many pairs, at most 1,000,000 of train and 25,000 of validation or test.
        seed: another seed gives other sentences, in another order.

    Returns:
        The pairs, in an order that depends on the arguments alone. Fewer with the same seed are the first of them.

    Raises:
        ValueError: if the split is unknown, or the size is below 1 or larger than the split can give.

    Example:
        >>> pairs = phrasebook("train", 1000)
        >>> len(pairs)
        1000
    """
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {SPLITS}. Received: split={split!r}")
    if not 1 <= size <= LARGEST[split]:
        raise ValueError(f"`size` must be from 1 to {LARGEST[split]} for {split!r}. Received: size={size}")
    found: dict[str, str] = {}
    for _, (portuguese, english), _ in _draws(random.Random(f"{split} {seed}"), split):
        found.setdefault(portuguese, english)
        if len(found) == size:
            break
    return list(found.items())


def count_sentences() -> dict[str, int]:
    """How many sentences each frame can make: the product of what its slots can hold."""
    counts = {}
    for frame in FRAMES:
        counts[frame.name] = 1
        for slot in frame.slots:
            counts[frame.name] *= sum(ways for _, ways in slot.weighed())
    return counts

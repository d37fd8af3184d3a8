"""Long text: cut into sentences and joined again, inside the graph."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

MOST_SENTENCES = 128  # of one text; what follows is cut

_BOUNDARY = "\x1e"  # the record separator of ASCII
_SPACE = r"[\s\p{Z}]"
_BOUNDARIES = (
    (_BOUNDARY, " "),  # of the text's own
    # A full stop, a closing quote or bracket, white space, and no small letter: "e.g. this" is one sentence.
    (rf"""([.!?…]+["'”’»)\]]*)({_SPACE}+[^\p{{Ll}}\s\p{{Z}}])""", rf"\1{_BOUNDARY}\2"),
    (r"([。！？]+[”’」』）]*)", rf"\1{_BOUNDARY}"),
    (rf"{_BOUNDARY}?({_SPACE}*\n{_SPACE}*)", rf"{_BOUNDARY}\1"),
    (rf"{_BOUNDARY}?({_SPACE}+)$", rf"{_BOUNDARY}\1"),  # white space at the end has no sentence after it
    (rf"^{_BOUNDARY}|{_BOUNDARY}$", ""),
)


class Sentences(NamedTuple):
    """The sentences of B texts, one after the other."""

    texts: tf.Tensor  # (P,), string
    rows: tf.Tensor  # (P,), int64: which text each belongs to
    gaps: tf.Tensor  # (P,), string: the white space before it
    truncated: tf.Tensor  # (B,), bool: whether sentences had to be left out


def split_sentences(texts: tf.Tensor, long: tf.Tensor) -> Sentences:
    """The sentences of the texts that are long; the others stay as they are.

    Args:
        texts: `(B,)`, string.
        long: `(B,)`, bool.
    """
    marked = tf.strings.unicode_transcode(tf.where(long, texts, ""), "UTF-8", "UTF-8", errors="replace")
    for pattern, replacement in _BOUNDARIES:
        marked = tf.strings.regex_replace(marked, pattern, replacement)
    sentences = tf.strings.split(marked, _BOUNDARY)  # (B, None); what is not long is one empty sentence
    truncated = sentences.row_lengths() > MOST_SENTENCES
    sentences = sentences[:, :MOST_SENTENCES]
    rows, pieces = sentences.value_rowids(), sentences.flat_values
    gaps = tf.strings.regex_replace(pieces, rf"(?s)^({_SPACE}*).*$", r"\1")
    pieces = tf.strings.regex_replace(pieces, rf"^{_SPACE}+", "")
    return Sentences(tf.where(tf.gather(long, rows), pieces, tf.gather(texts, rows)), rows, gaps, truncated)


def join_sentences(translations: tf.Tensor, sentences: Sentences) -> tf.Tensor:
    """`(P, n)` translations of the sentences -> `(B, n)`, with the white space that was between them."""
    number, rows = tf.shape(sentences.truncated)[0], tf.cast(sentences.rows, tf.int32)
    joined = [
        tf.strings.unsorted_segment_join(tf.strings.join([sentences.gaps, column]), rows, number)
        for column in tf.unstack(translations, axis=1)
    ]
    return tf.stack(joined, axis=1)

"""What a translator gives for a text."""

from typing import NamedTuple


class Hypothesis(NamedTuple):
    """One translation of one text.

    `score` is the log-probability over the length penalty, added up over the sentences of a text that was translated
    by its sentences; `truncated` says whether something of the source was cut.
    """

    text: str
    score: float
    truncated: bool

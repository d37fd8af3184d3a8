"""Rules that SentencePiece applies to text before it cuts it into pieces."""

from __future__ import annotations

import sys
import unicodedata


def nfc_rules() -> str:
    """Canonical composition (Unicode NFC), and every white space character becomes a space.

    Unlike SentencePiece's own rules, which follow NFKC, this makes no character another one: "½", "…" and "ℵ" stay.

    Returns:
        Rules as SentencePiece's `normalization_rule_tsv` has them: code points, tab, code points, a rule a line.
    """
    rules = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        if character.isspace() and character != " ":
            rules[character] = " "
        elif decomposition := _canonical_decomposition(character):
            composed = unicodedata.normalize("NFC", character)
            for form in (character, decomposition, unicodedata.normalize("NFD", character)):
                if form != composed:
                    rules[form] = composed
    return "".join(f"{_code_points(form)}\t{_code_points(composed)}\n" for form, composed in sorted(rules.items()))


def _canonical_decomposition(character: str) -> str:
    """One step of the canonical decomposition: "ệ" to "ẹ" and a circumflex; empty where there is none."""
    decomposition = unicodedata.decomposition(character)
    if decomposition.startswith("<"):  # a compatibility decomposition
        return ""
    if not decomposition:  # Hangul syllables decompose by rule, without an entry
        decomposed = unicodedata.normalize("NFD", character) if "가" <= character <= "힣" else ""
        return unicodedata.normalize("NFC", decomposed[:2]) + decomposed[2:]
    return "".join(chr(int(code, 16)) for code in decomposition.split())


def _code_points(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)

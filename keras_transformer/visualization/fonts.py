"""Fonts in which a machine can draw given pieces of text, and what it cannot draw."""

from __future__ import annotations

import functools
from collections.abc import Iterable

_FIRST = "DejaVu Sans"  # comes with Matplotlib: Latin with all accents, Greek, Cyrillic, Arabic, Hebrew, symbols
_BOX = "□"
_LONGEST = 40  # characters of a label
# Looked through before the machine's other fonts, which might have a character by chance and ugly.
_PREFERRED = (
    *("NotoSansCJK", "NotoSans", "Hiragino", "msgothic", "msyh", "malgun", "Nirmala", "Arial Unicode"),
    *("wqy", "ipag", "unifont", "NotoEmoji", "seguiemj"),
)
_REFUSED = ("LastResort", "ColorEmoji")  # one has a box for every character, one has pictures that are not drawn


class Fonts:
    """Fonts that have, together, the characters of some texts, as far as the machine can.

    Matplotlib shapes Arabic and writes right to left what is written so, in whichever of them has the letters.

    Args:
        texts: What shall be drawn.

    Attributes:
        families: Names for Matplotlib's `family`.
        missing: Characters that no font of the machine has, in the order of their code points.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        from matplotlib import font_manager

        self.families = [_FIRST]
        wanted = {character for text in texts for character in text if not character.isspace()}
        wanted -= _characters(font_manager.findfont(_FIRST))
        for path in _system_fonts() if wanted else ():
            new = wanted & _characters(path)
            if new:
                wanted -= new
                self.families.append(_family(path))
            if not wanted:
                break
        self.missing = "".join(sorted(wanted))

    def drawable(self, text: str) -> str:
        """The text on one line, not longer than a label may be, with a box for each character that no font has."""
        short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        return "".join(
            _BOX if character in self.missing else " " if character.isspace() else character for character in short
        )

    def note(self) -> str:
        """What a picture has to say of its boxes, or nothing."""
        if not self.missing:
            return ""
        named = ", ".join(f"U+{ord(character):04X}" for character in self.missing[:4])
        more = f" and {len(self.missing) - 4} more" if len(self.missing) > 4 else ""
        return f"{_BOX}: no font on this machine has {named}{more}; install one (Noto Sans has nearly all)"


def _system_fonts() -> list[str]:
    """Read anew each time: Matplotlib's own list is made once and lacks what was installed since."""
    from matplotlib import font_manager

    def rank(path: str) -> tuple[int, bool, str]:
        places = [place for place, name in enumerate(_PREFERRED) if name.lower() in path.lower()]
        return min(places, default=len(_PREFERRED)), "Regular" not in path, path

    regular = [path for path in font_manager.findSystemFonts() if not any(name in path for name in _REFUSED)]
    return sorted(regular, key=rank)


@functools.lru_cache(maxsize=256)
def _characters(path: str) -> frozenset[str]:
    """Those that a font file has; none if Matplotlib cannot read it."""
    from matplotlib import font_manager

    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (RuntimeError, OSError):  # a bitmap font, a damaged file
        return frozenset()


@functools.lru_cache(maxsize=256)
def _family(path: str) -> str:
    from matplotlib import font_manager

    name = font_manager.get_font(path).family_name
    if name not in {font.name for font in font_manager.fontManager.ttflist}:
        font_manager.fontManager.addfont(path)
    return name

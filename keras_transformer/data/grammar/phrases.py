"""The phrases of the built-in phrasebook: who does things, with what, where and when, as slots of sentence frames."""

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keras_transformer.data.grammar import inflection as form
from keras_transformer.data.grammar.clauses import (
    I_DROPPED,
    WE_DROPPED,
    Action,
    Core,
    Determiner,
    Pair,
    Subject,
    core,
    noun_phrase,
    subject,
)
from keras_transformer.data.grammar.lexicon import (
    NAMES,
    NOUNS,
    QUALITIES,
    TRANSITIVES,
    Noun,
)


class Slot:
    """A place in a frame: groups of options, each option with the choices (determiners) that go with it.

    A draw takes a group, then an option, then a choice, so that small groups are heard as often as large ones.
    """

    def __init__(self, *groups: Iterable[Any], choices: Callable[[Any], Sequence[Any]] | None = None) -> None:
        self.groups = [group for group in map(tuple, groups) if group]
        self.choices = choices

    def draw(self, rng: random.Random) -> tuple[Any, tuple[Pair, ...]]:
        """An option (with its choice, if there are choices) and its content pairs."""
        groups = self.groups
        group = groups[int(rng.random() * len(groups))] if len(groups) > 1 else groups[0]
        option = group[int(rng.random() * len(group))]
        pairs = getattr(option, "pairs", ())
        if self.choices is None:
            return option, pairs
        choices = self.choices(option)
        return (option, choices[int(rng.random() * len(choices))]), pairs

    def weighed(self) -> list[tuple[tuple[Pair, ...], int]]:
        """Every option's pairs, and in how many ways it can be said."""
        options = dict.fromkeys(option for group in self.groups for option in group)
        return [(getattr(o, "pairs", ()), len(self.choices(o)) if self.choices else 1) for o in options]


# --- Determiners -----------------------------------------------------------------------------------------------------

THE, THE_PL = Determiner("o", "a", "the"), Determiner("os", "as", "the", True)
A, SOME = Determiner("um", "uma", "a"), Determiner("alguns", "algumas", "some", True)
MANY = Determiner("muitos", "muitas", "many", True)
MY, MY_PL = Determiner("meu", "minha", "my"), Determiner("meus", "minhas", "my", True)
OUR, OUR_PL = Determiner("nosso", "nossa", "our"), Determiner("nossos", "nossas", "our", True)
THIS, THESE = Determiner("este", "esta", "this"), Determiner("estes", "estas", "these", True)
THAT, THOSE = Determiner("aquele", "aquela", "that"), Determiner("aqueles", "aquelas", "those", True)
HIS, HER = Determiner("o", "a", "his", False, "dele"), Determiner("o", "a", "her", False, "dela")
HIS_PL, HER_PL = Determiner("os", "as", "his", True, "dele"), Determiner("os", "as", "her", True, "dela")
THEIR = Determiner("o", "a", "their", False, "deles")
ZERO, UNSAID_THE, UNSAID_EN = Determiner("", "", ""), Determiner("", "", "the"), Determiner("o", "a", "")
NUMERALS = tuple(
    Determiner(form.portuguese_number(n), form.portuguese_number(n, "f"), form.english_number(n), True)
    for n in range(2, 11)
)
POINTING = (THE, THE_PL, THIS, THESE, THAT, THOSE)
OWN = (MY, MY_PL, OUR, OUR_PL, HIS, HER, THEIR)
COUNTED = (A, SOME, MANY, *NUMERALS[:4])
BARE_KINDS = ("language", "science", "sport", "music")
EDIBLE_KINDS = ("meal", "food", "drink", "fruit", "snack")
PUBLIC_KINDS = (
    "show",
    "song",
    "press",
    "building",
    "outdoors",
    "beast",
    "person",
    "event",
    "workplace",
    "opening",
    "transit",
    "water",
    "route",
)
HANDED_OVER = ("comprar", "vender", "trazer", "levar", "escolher", "encontrar", "procurar")
MEETING = ("ajudar", "convidar", "abraçar", "visitar")


def is_public(noun: Noun) -> bool:
    """Whether nobody says "my" of it."""
    return noun.kind in PUBLIC_KINDS


def personal_determiners(noun: Noun) -> tuple[Determiner, ...]:
    """Whose relative or friend it may be."""
    if noun.pt == "marido":
        return (MY, HER)
    if noun.pt == "esposa":
        return (MY, HIS)
    if noun.kind == "relative" or noun.pt == "chefe":
        return (MY, OUR, HIS, HER)
    return (MY, MY_PL, OUR, OUR_PL, HIS, HER)


def object_determiners(action: Action) -> tuple[Determiner, ...]:
    """The determiners that suit the object of something done once."""
    noun = action.core.noun
    if noun.kind in BARE_KINDS:
        return (ZERO,)
    if noun.kind == "instrument" and action.verb.pt == "tocar":
        return (UNSAID_THE,)
    if noun.mass:
        return (ZERO, THE, THIS)
    if noun.kind in ("relative", "friend"):
        return personal_determiners(noun)
    if noun.kind == "transit":
        return (THE, A, THIS, THAT)
    if noun.kind in EDIBLE_KINDS or is_public(noun):
        return POINTING + COUNTED
    if action.verb.pt in HANDED_OVER:
        return POINTING + COUNTED + (MY, OUR)
    return POINTING + COUNTED + OWN


def habit_determiners(action: Action) -> tuple[Determiner, ...]:
    """The determiners that suit the object of a habit."""
    noun = action.core.noun
    if noun.mass or noun.kind in ("relative", "friend") or action.verb.pt == "tocar":
        return tuple(d for d in object_determiners(action) if d is not THE and d is not THIS)
    if noun.kind in EDIBLE_KINDS:
        return (A,)
    if is_public(noun):
        return (A, THE, THIS, THESE, THAT)
    return (THE, THE_PL, MY, OUR, THIS, THESE, THAT)


def definite_determiners(action: Action) -> tuple[Determiner, ...]:
    """The determiners of something known."""
    wanted = (*POINTING, *OWN, ZERO, UNSAID_THE)
    return tuple(d for d in object_determiners(action) if d in wanted)


def thing_determiners(head: Core) -> tuple[Determiner, ...]:
    """The determiners of a thing that something is said about."""
    if head.noun.kind in ("language", "science", "sport"):
        return (UNSAID_EN,)
    if head.noun.mass:
        return (THE, THIS, MY) if head.noun.kind in EDIBLE_KINDS else (THE,)
    if head.noun.kind in EDIBLE_KINDS:
        return (*POINTING, MY, MY_PL)
    if head.noun.kind in ("relative", "friend"):
        return personal_determiners(head.noun)
    if is_public(head.noun):
        return POINTING
    return POINTING + OWN + (HIS_PL, HER_PL) + OWNERS


def _owner(pt: str, en: str, plural: bool = False) -> Determiner:
    return Determiner("os" if plural else "o", "as" if plural else "a", en, plural, pt)


def nouns(*kinds: str) -> list[Noun]:
    """The nouns of these classes."""
    return [noun for noun in NOUNS.values() if noun.kind in kinds]


_NAMES = [(row[0], row[2:]) for row in NAMES.split(", ")]
OWNERS = tuple(
    [_owner(f"de {name}", f"{name}'s", plural) for _, name in _NAMES for plural in (False, True)]
    + [
        _owner(form.contracted("de", noun_phrase(THE, core(noun)).pt), f"the {noun.en}'s", plural)
        for noun in nouns("person")
        for plural in (False, True)
    ]
)

# --- Subjects --------------------------------------------------------------------------------------------------------

I_SAID, WE_SAID = Subject("eu", "I", 0), Subject("nós", "we", 2)
HE, SHE = Subject("ele", "he", 1), Subject("ela", "she", 1, "f")
YOU, YOU_ALL = Subject("você", "you", 1), Subject("vocês", "you", 3)
THEY_M, THEY_F = Subject("eles", "they", 3), Subject("elas", "they", 3, "f")
WHO = Subject("quem", "who", 1)
PRONOUNS = (HE, SHE, YOU, YOU_ALL, THEY_M, THEY_F)
PEOPLE_NAMED = [Subject(name, name, 1, gender) for gender, name in _NAMES]
COUPLES = [
    Subject(f"{first} e {second}", f"{first} and {second}", 3, "m" if "m" in (g, h) else "f")
    for g, first in _NAMES
    for h, second in _NAMES
    if first != second and (len(first) + len(second)) % 3 == 0
]
PEOPLE = [subject(d, core(noun)) for noun in nouns("person") for d in (THE, THE_PL)]
DESCRIBED_PEOPLE = [
    subject(d, core(noun, adjective))
    for noun in nouns("person")
    for adjective in QUALITIES["person"]
    if not (noun.pt == "criança" and adjective.pt in ("jovem", "rico"))
    for d in (THE, THE_PL, A)
]
RELATIVES = [subject(d, core(noun)) for noun in nouns("relative") for d in personal_determiners(noun)]
FRIENDS = [subject(d, core(noun)) for noun in nouns("friend") for d in personal_determiners(noun)]
OTHERS = (PEOPLE_NAMED, COUPLES, PEOPLE, DESCRIBED_PEOPLE, RELATIVES, FRIENDS)
# Where an adverb or an irregular form settles the tense, "nós" may stand; elsewhere "compramos" has two readings.
_WE_OR_I = ((I_DROPPED, WE_DROPPED), (I_DROPPED, WE_DROPPED), (I_SAID, WE_SAID))
SUBJECTS = Slot(*_WE_OR_I, PRONOUNS, *OTHERS)
SETTLED_SUBJECTS = Slot((I_DROPPED,), (I_DROPPED, I_SAID), PRONOUNS, *OTHERS)
ASKED = Slot((YOU, YOU_ALL, HE, SHE, THEY_M, THEY_F), (YOU, YOU_ALL), PEOPLE_NAMED, PEOPLE, RELATIVES, FRIENDS)

# --- Objects, places, times ------------------------------------------------------------------------------------------


def described(noun: Noun) -> list[Core]:
    """The noun with each of the adjectives that suit it, if it goes with any."""
    fixed = noun.kind in (*BARE_KINDS, "relative", "friend")
    return [] if fixed else [core(noun, adjective) for adjective in QUALITIES[noun.kind]]


@functools.cache
def actions(
    uses: str = "", long: bool = False, verbs: str = "", planned: bool = False
) -> tuple[tuple[Action, ...], ...]:
    """For each verb with these uses: a group of plain objects and a group of described ones.

    Args:
        uses: letters of the verb table that all must be there.
        long: also take what lasts longer than a day.
        verbs: the verbs wanted, if not all.
        planned: leave out what nobody plans, such as losing a key.
    """
    groups: dict[tuple[str, bool], list[Action]] = {}
    for event in TRANSITIVES:
        unsuited = (
            not set(uses) <= set(event.uses) or ("b" in event.uses and not long) or ("m" in event.uses and planned)
        )
        if unsuited or (verbs and event.verb.pt not in verbs.split()):
            continue
        for noun in nouns(*event.kinds):
            played = event.verb.pt == "tocar" and noun.kind == "instrument"
            for head in [core(noun), *([] if played else described(noun))]:
                pairs = ((event.verb.pt, noun.pt), *head.pairs)
                groups.setdefault((event.verb.pt, bool(head.adjective)), []).append(Action(event.verb, head, pairs))
    return tuple(tuple(group) for group in groups.values())


HABITUAL = Slot(*actions("h"), choices=habit_determiners)
POLARITY = Slot(("",), ("",), ("não",))

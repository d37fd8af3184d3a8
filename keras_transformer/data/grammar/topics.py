"""What things are said about: nouns with their adjectives, gifts, wishes, comparisons."""

from collections.abc import Iterable
from typing import NamedTuple

from keras_transformer.data.grammar import inflection as form
from keras_transformer.data.grammar.circumstances import OUTSIDE, PLAIN, place
from keras_transformer.data.grammar.clauses import (
    I_DROPPED,
    WE_DROPPED,
    Action,
    Core,
    Determiner,
    Pair,
    Subject,
    Text,
    after_preposition,
    core,
    noun_phrase,
    subject,
)
from keras_transformer.data.grammar.lexicon import NOUNS, QUALITIES, STATES, Adjective, Noun, Verb, adjectives
from keras_transformer.data.grammar.phrases import (
    COUNTED,
    COUPLES,
    EDIBLE_KINDS,
    HER,
    HIS,
    MANY,
    MY,
    NUMERALS,
    OUR,
    PEOPLE,
    PEOPLE_NAMED,
    POINTING,
    PRONOUNS,
    RELATIVES,
    SOME,
    THAT,
    THE,
    THE_PL,
    THESE,
    THIS,
    THOSE,
    YOU,
    ZERO,
    A,
    Slot,
    actions,
    definite_determiners,
    described,
    nouns,
    personal_determiners,
    thing_determiners,
)

_UNGRADED = "aberto fechado quebrado pronto perdido delicioso vermelho azul verde amarelo branco preto marrom roxo"
UNGRADED = tuple(adjectives(_UNGRADED))
MODALS = Slot(("can",), ("should",), ("want",), ("need",))
VERY = Text("muito", "very")
QUESTION_WORDS = Slot((Text("onde", "where"), Text("quando", "when"), Text("por que", "why")))
HOW_MANY = Determiner("quantos", "quantas", "how many", True)
WHICH, WHICH_PL = Determiner("que", "que", "which"), Determiner("que", "que", "which", True)
ASKED_VERBS = [
    Verb(pt, en)
    for pt, en in (("comer", "eat"), ("comprar", "buy"), ("beber", "drink"), ("ler", "read"), ("vender", "sell"),
                   ("estudar", "study"), ("escrever", "write"), ("fazer", "do"), ("procurar", "look for"))
]  # fmt: skip


def plain_actions(uses: str) -> list[tuple[Action, ...]]:
    """The groups of actions whose objects have no adjective."""
    return [group for group in actions(uses, long=True) if not group[0].core.adjective]


def asked_actions() -> list[tuple[Action, ...]]:
    """Actions with objects that one counts and asks for."""
    groups = [
        tuple(a for a in group if not a.core.noun.mass and a.core.noun.kind not in ("relative", "friend"))
        for group in actions()
        if not group[0].verb.preposition
    ]
    return [group for group in groups if group and group[0].verb.pt not in ("tocar", "quebrar", "abraçar")]


def qualities(kinds: str = "") -> list[tuple[Core, ...]]:
    """For each class of nouns: what its nouns can lastingly be and are not said to be just now."""
    return [
        tuple(core(n, a) for n in nouns(kind) for a in QUALITIES[kind] if a not in STATES.get(kind, ()))
        for kind in kinds.split() or QUALITIES
    ]


def states() -> list[tuple[Core, ...]]:
    """For each class of nouns: what its nouns can be for a while."""
    return [tuple(core(n, a) for n in nouns(kind) for a in words) for kind, words in STATES.items()]


def graded(head: Core) -> list[tuple[Determiner, Text]]:
    """Determiners of a thing, with and without `muito` where its adjective has degrees."""
    degrees = (PLAIN,) if head.adjective is None or head.adjective in UNGRADED else (PLAIN, VERY)
    return [(determiner, degree) for determiner in thing_determiners(head) for degree in degrees]


def _women(*subjects: Subject) -> list[Subject]:
    return [who._replace(gender="f") for who in subjects]


MOODS = Slot([Text(a.pt, a.en) for a in STATES["friend"] if a.pt != "pronto"])
MOODY = Slot((I_DROPPED, WE_DROPPED), _women(I_DROPPED, WE_DROPPED), (*PRONOUNS, *_women(YOU)), PEOPLE_NAMED, COUPLES)
TRADED = Slot((I_DROPPED, WE_DROPPED), _women(I_DROPPED, WE_DROPPED), (*PRONOUNS, *_women(YOU)), PEOPLE_NAMED, COUPLES,
              RELATIVES)  # fmt: skip
UNSAID_A, UNSAID_PL = Determiner("", "", "a"), Determiner("", "", "", True)
_TRADES = """professor professora, aluno aluna, médico médica, advogado advogada, engenheiro engenheira,
    cozinheiro cozinheira, jornalista jornalista, motorista motorista, gerente gerente, artista artista,
    escritor escritora, ator atriz, policial policial"""
TRADES = [(NOUNS[pair.split()[0]], NOUNS[pair.split()[1]]) for pair in " ".join(_TRADES.split()).split(", ")]
_PERSONAL = adjectives("alto jovem forte rico inteligente simpático paciente tímido")


class Likeness(NamedTuple):
    """Somebody and what is said of them."""

    who: Subject
    adjective: Adjective
    pairs: tuple[Pair, ...]


LIKENESSES = Slot(
    [Likeness(who, adjective, ()) for who in PEOPLE_NAMED for adjective in _PERSONAL],
    [
        Likeness(subject(d, core(noun)), adjective, ((adjective.pt, noun.pt),))
        for noun in nouns("relative")
        for d in personal_determiners(noun)
        for adjective in _PERSONAL
    ],
)
_COMPARABLE = adjectives("""novo velho caro barato bonito pesado leve longo curto alto rápido lento confortável elegante
    interessante famoso difícil fácil importante moderno perigoso forte grande pequeno popular""")
_COMPARED_KINDS = "text show song clothes device vehicle transport transit furniture building outdoors animal beast"


class Comparison(NamedTuple):
    """Two nouns and the adjective by which they are compared."""

    nouns: tuple[Noun, Noun]
    adjective: Adjective
    pairs: tuple[Pair, ...]


COMPARISONS = [
    Comparison((left, right), adjective, ((adjective.pt, left.pt), (adjective.pt, right.pt)))
    for kind in _COMPARED_KINDS.split()
    for adjective in QUALITIES[kind]
    if adjective in _COMPARABLE
    for left in nouns(kind)
    for right in nouns(kind)
    if left != right
]


def determiner_pairs(what: Comparison) -> list[tuple[Determiner, Determiner]]:
    """The determiners of two things that are compared."""
    kind = what.nouns[0].kind
    common = [(THE, THE), (THIS, THAT), (THAT, THIS)]
    owned = [(MY, MY), (MY, HIS), (OUR, HER), (HER, HIS)]
    return common + (owned if kind in ("clothes", "device", "animal") else [])


def compared(adjective: Adjective, who: Subject) -> Text:
    """`mais caras` = `more expensive`; `maior` = `bigger`."""
    small = {"grande": "maior", "pequeno": "menor"}.get(adjective.pt)
    pt = form.agreeing(small or adjective.pt, who.gender, who.plural)
    return Text(pt if small else f"mais {pt}", form.comparative(adjective.en))


_UNTOUCHABLE = ("mensagem", "história", "conto", "poema", "artigo")
PLACED = [
    group
    for kind in ("object", "dish", "press", "text", "clothes")
    for things in ([n for n in nouns(kind) if n.pt not in _UNTOUCHABLE],)
    for group in ([core(n) for n in things], [head for n in things for head in described(n)])
]
COUNTED_THINGS = Slot(*PLACED, choices=lambda head: (*COUNTED, A))
OUTSIDERS = Slot(*[[core(n) for n in nouns(kind)] for kind in OUTSIDE], choices=lambda head: _outside(head))


def _outside(head: Core) -> list[tuple[Determiner, Text]]:
    return [(d, place(NOUNS[name])) for d in (A, SOME, MANY, *NUMERALS) for name in OUTSIDE[head.noun.kind].split()]


def _lending(verbs: Iterable[tuple[str, str, str]], kinds: str, plain: bool = True) -> list[list[Action]]:
    """Groups of actions of these verbs with nouns of these classes."""
    groups = []
    for pt, en, preposition in verbs:
        for kind in kinds.split():
            heads = [core(n) for n in nouns(kind)] + ([] if plain else [c for n in nouns(kind) for c in described(n)])
            groups.append([Action(Verb(pt, en, preposition), h, ((pt, h.noun.pt), *h.pairs)) for h in heads])
    return groups


_GIVING = (("dar", "give", ""), ("mostrar", "show", ""), ("emprestar", "lend", ""))
GIFTS = Slot(
    *_lending(_GIVING, "object text clothes press device", plain=False),
    choices=lambda action: (*POINTING, *COUNTED, OUR),
)
RECIPIENTS = Slot(
    [after_preposition("a", "to", noun_phrase(d, core(noun))) for noun in nouns("person") for d in (THE, THE_PL, THAT)]
)
THIRD_PERSONS = Slot(tuple(p for p in PRONOUNS if p.en != "you"), PEOPLE_NAMED, PEOPLE, COUPLES)
CLITICS = Slot((Text("me", "me"),), (Text("te", "you"),), (Text("nos", "us"),))
TOUCHING = [Verb(pt, en) for pt, en in (("ver", "see"), ("ajudar", "help"), ("abraçar", "hug"), ("visitar", "visit"),
    ("procurar", "look for"), ("encontrar", "find"), ("chamar", "call"))]  # fmt: skip
LIKING = _lending(
    (("gostar", "like", "de"), ("adorar", "love", ""), ("odiar", "hate", "")),
    "meal food drink sport music science language song show text clothes building animal press furniture",
)


def liked(action: Action) -> tuple[Determiner, ...]:
    """What one likes: the stuff, or this thing."""
    return (ZERO, THIS) if action.core.noun.kind in EDIBLE_KINDS else (
        (ZERO,) if action.core.noun.mass else (THIS, THAT, THESE, THOSE))  # fmt: skip


HAVING = _lending(
    (("ter", "have", ""), ("querer", "want", ""), ("precisar", "need", "de")),
    "object clothes device vehicle transport furniture animal instrument press dish",
    plain=False,
)


def had(action: Action) -> tuple[Determiner, ...]:
    """What one has, wants or needs."""
    return (A, *NUMERALS[:4], MANY) if action.verb.pt == "ter" else (A, *NUMERALS[:4], THIS, THAT, THESE, THOSE)


def known(action: Action) -> tuple[Determiner, ...]:
    """The determiners of what a passive sentence is about."""
    return tuple(d for d in definite_determiners(action) if d is not ZERO)


def _own_relatives() -> list[tuple[str, str]]:
    """`a minha mãe`: after a preposition the possessive takes an article."""
    phrases = [
        (noun.gender, noun_phrase(determiner, core(noun)))
        for noun in nouns("relative")
        for determiner in personal_determiners(noun)
        if determiner in (MY, OUR)
    ]
    return [(f"{'a' if gender == 'f' else 'o'} {text.pt}", text.en) for gender, text in phrases]


AGENTS = Slot(
    [Text(f"por {who.pt}", f"by {who.en}") for who in PEOPLE_NAMED],
    [after_preposition("por", "by", (who.pt, who.en)) for who in PEOPLE],
    [after_preposition("por", "by", relative) for relative in _own_relatives()],
)
TOLD_ABOUT = [g for g in actions(verbs="comprar vender ler escrever encontrar perder pintar visitar consertar esquecer")
              if g[0].core.adjective]  # fmt: skip
MERITS = adjectives("barato interessante útil delicioso moderno confortável elegante rápido")
FAULTS = adjectives("caro feio longo difícil lento pesado velho perigoso")


def one_or_more(action: Action) -> tuple[Determiner, ...]:
    """The determiners of a thing that a clause goes on about."""
    return (THE,) if action.core.noun.mass else (THE, THE_PL, THAT, THOSE)


JUDGED = Slot(
    *[
        [a for a in group if a.core.adjective in (*MERITS, *FAULTS)]
        for group in actions(verbs="comprar escolher usar comer ler levar")
    ],
    choices=one_or_more,
)
PRICED = [core(n) for kind in ("object", "clothes", "dish", "press", "snack") for n in nouns(kind)]
PRICED_DESCRIBED = [c for head in PRICED for c in described(head.noun)]

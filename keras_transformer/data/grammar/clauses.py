"""The grammar of the built-in phrasebook: how phrases and clauses are put together in Portuguese and English."""

from typing import NamedTuple

from keras_transformer.data.grammar import inflection as form
from keras_transformer.data.grammar.lexicon import Adjective, Noun, Verb

Pair = tuple[str, str]


class Text(NamedTuple):
    """A piece of a sentence in both languages, with the content pairs (see `phrasebook`) that it holds."""

    pt: str
    en: str
    pairs: tuple[Pair, ...] = ()


Words = Text | tuple[str, str]


class Determiner(NamedTuple):
    """What stands before a noun (masculine and feminine), after it in Portuguese, and in English."""

    masculine: str
    feminine: str
    en: str
    plural: bool = False
    after: str = ""


class Core(NamedTuple):
    """A noun with or without an adjective."""

    noun: Noun
    adjective: Adjective | None
    pairs: tuple[Pair, ...]


class Subject(NamedTuple):
    """Who does it: Portuguese person 0 to 3, `pt` empty where the verb's ending says enough."""

    pt: str
    en: str
    person: int
    gender: str = "m"
    pairs: tuple[Pair, ...] = ()

    @property
    def plural(self) -> bool:
        """Whether an adjective that agrees with it is plural."""
        return self.person >= 2


class Action(NamedTuple):
    """A verb with the core of its object."""

    verb: Verb
    core: Core
    pairs: tuple[Pair, ...]


BE_FOR_NOW = Verb("estar", "be")
BE = Verb("ser", "be")
I_DROPPED = Subject("", "I", 0)
WE_DROPPED = Subject("", "we", 2)


def core(noun: Noun, adjective: Adjective | None = None) -> Core:
    """A noun, or a noun with its adjective and their pair."""
    return Core(noun, adjective, ((adjective.pt, noun.pt),) if adjective else ())


def joined(*texts: Words) -> Text:
    """Texts one after the other; empty ones leave no gap."""
    return Text(" ".join(t[0] for t in texts if t[0]), " ".join(t[1] for t in texts if t[1]))


def noun_phrase(determiner: Determiner, head: Core) -> Text:
    """`uma casa azul` = `a blue house`; `os carros dela` = `her cars`."""
    noun, adjective = head.noun, head.adjective
    before = determiner.feminine if noun.gender == "f" else determiner.masculine
    words = [before, form.portuguese_plural(noun.pt) if determiner.plural else noun.pt]
    english = form.english_plural(noun.en) if determiner.plural else noun.en
    if adjective:
        words.append(form.agreeing(adjective.pt, noun.gender, determiner.plural))
        english = f"{adjective.en} {english}"
    if determiner.after:
        words.append(determiner.after)
    english = form.with_article(english) if determiner.en == "a" else f"{determiner.en} {english}".strip()
    return Text(" ".join(words).strip(), english)


def subject(determiner: Determiner, head: Core) -> Subject:
    """A noun phrase as a subject."""
    pt, en, _ = noun_phrase(determiner, head)
    return Subject(pt, en, 3 if determiner.plural else 1, head.noun.gender, head.pairs)


def after_preposition(pt: str, en: str, phrase: Words) -> Text:
    """Both languages' preposition before a phrase, contracted where Portuguese does so."""
    return Text(form.contracted(pt, phrase[0]), f"{en} {phrase[1]}".strip())


def be(who: Subject, past: bool = False) -> str:
    """`am`, `is`, `are`, `was` or `were`."""
    if who.en == "I":
        return "was" if past else "am"
    singular = who.person == 1 and who.en != "you"
    return ("was" if past else "is") if singular else ("were" if past else "are")


def _third(who: Subject) -> bool:
    return who.person == 1 and who.en != "you"


_MODALS = {
    "can": ("poder", "can", ""),
    "should": ("dever", "should", ""),
    "want": ("querer", "", "want to"),
    "need": ("precisar", "", "need to"),
}
TENSES = ("present", "past", "future", "going", "progressive", "was_doing", "perfect", "was", *_MODALS)


def _portuguese(verb: str, tense: str, person: int) -> str:
    if tense in ("past", "perfect"):
        return form.portuguese_verb(verb, "preterite", person)
    if tense == "was":
        return form.portuguese_verb(verb, "imperfect", person)
    if tense == "going":
        return f"{form.portuguese_verb('ir', 'present', person)} {verb}"
    if tense in ("progressive", "was_doing"):
        helper = form.portuguese_verb("estar", "present" if tense == "progressive" else "imperfect", person)
        return f"{helper} {form.gerund(verb)}"
    if tense in _MODALS:
        return f"{form.portuguese_verb(_MODALS[tense][0], 'present', person)} {verb}"
    return form.portuguese_verb(verb, tense, person)


def _english(verb: str, tense: str, who: Subject) -> tuple[str, str, str]:
    """The helper verb for questions and negation, what follows it, and the plain affirmative form."""
    do, have = ("does", "has") if _third(who) else ("do", "have")
    helper = rest = ""
    if verb == "be" and tense in ("present", "was", "past"):
        helper = be(who, past=tense != "present")
    elif tense == "present":
        return do, verb, form.third_person(verb) if _third(who) else verb
    elif tense == "past":
        return "did", verb, form.english_past(verb)
    elif tense == "future":
        helper, rest = "will", verb
    elif tense == "going":
        helper, rest = be(who), f"going to {verb}"
    elif tense in ("progressive", "was_doing"):
        helper, rest = be(who, past=tense == "was_doing"), form.english_gerund(verb)
    elif tense == "perfect":
        helper, rest = have, form.english_past(verb, participle=True)
    elif _MODALS[tense][1]:
        helper, rest = _MODALS[tense][1], verb
    else:
        chain = _MODALS[tense][2]
        return do, f"{chain} {verb}", f"{form.third_person(chain) if _third(who) else chain} {verb}"
    return helper, rest, f"{helper} {rest}".strip()


# Forms that are also another common word, so that they do not stand alone.
_HOMONYMS = ("como", "vendo", "trouxe", "vamos")


def _needs_pronoun(verb: str, tense: str, person: int) -> bool:
    """Whether a verb form alone leaves open who is meant (`trouxe`) or what ("vamos comprar": "let us buy")."""
    if tense == "going":
        return person == 2
    own = _portuguese(verb, tense, person)
    return own in _HOMONYMS or own == _portuguese(verb, tense, 1)


def clause(
    who: Subject, verb: Verb, tense: str, rest: Words, negative: str = "", question: bool = False,
    clitic: str = "", adverb: Words = ("", ""),
) -> Text:  # fmt: skip
    """A clause without its full stop.

    Args:
        who: the subject; one without Portuguese words gets its pronoun back where the verb's form needs it.
        verb: the verb.
        tense: one of `TENSES`.
        rest: object and adverbials in both languages.
        negative: `""` or `"não"`.
        question: whether English asks with its helper verb first.
        clitic: Portuguese pronoun before the verb; its English stands in `rest`.
        adverb: adverb before the main verb, such as `("sempre", "always")`.
    """
    name = who.pt or ({0: "eu", 2: "nós"}[who.person] if _needs_pronoun(verb.pt, tense, who.person) else "")
    spoken = _portuguese(verb.pt, tense, who.person)
    pt = " ".join(word for word in (name, negative, adverb[0], clitic, spoken, rest[0]) if word)
    helper, bare, plain = _english(verb.en, tense, who)
    if question:
        words = [helper, who.en, "not" if negative else "", adverb[1], bare]
    elif negative:
        words = [who.en, "cannot" if helper == "can" else f"{helper} not", adverb[1], bare]
    elif adverb[1] and tense not in ("present", "past"):
        words = [who.en, helper, adverb[1], bare]
    else:
        words = [who.en, adverb[1], plain]
    return Text(pt, " ".join(word for word in (*words, rest[1]) if word))


def object_of(verb: Verb, phrase: Words) -> Text:
    """An object with the preposition that its Portuguese verb asks for: `ao filme` = `the movie`."""
    return Text(form.contracted(verb.preposition, phrase[0]), phrase[1])


def sentence(text: Words, mark: str = ".") -> tuple[str, str]:
    """Capital letter and full stop in both languages."""
    return text[0][0].upper() + text[0][1:] + mark, text[1][0].upper() + text[1][1:] + mark

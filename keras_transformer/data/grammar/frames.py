"""The sentence frames of the built-in phrasebook: which phrases meet in which construction."""

from collections.abc import Callable
from typing import NamedTuple

from keras_transformer.data.grammar import circumstances, phrases, topics
from keras_transformer.data.grammar.clauses import (
    Action,
    Determiner,
    Subject,
    Text,
    clause,
    joined,
    noun_phrase,
    object_of,
    sentence,
)
from keras_transformer.data.grammar.lexicon import Verb
from keras_transformer.data.grammar.phrases import POLARITY, SETTLED_SUBJECTS, SUBJECTS, Slot

Sentence = tuple[str, str]
Object = tuple[Action, Determiner]


class Frame(NamedTuple):
    """A construction: its slots, and the function from what they hold to the two sentences."""

    name: str
    slots: tuple[Slot, ...]
    render: Callable[..., Sentence]
    weight: int = 1


FRAMES: list[Frame] = []


def frame(*slots: Slot, weight: int = 1) -> Callable[[Callable[..., Sentence]], Callable[..., Sentence]]:
    """Register the function below as the frame of that name."""

    def register(render: Callable[..., Sentence]) -> Callable[..., Sentence]:
        FRAMES.append(Frame(render.__name__.strip("_"), slots, render, weight))
        return render

    return register


def said(thing: Object) -> Text:
    """The object of an action, as it stands after its verb."""
    action, determiner = thing
    return object_of(action.verb, noun_phrase(determiner, action.core))


def _done(uses: str = "", long: bool = False, verbs: str = "", planned: bool = False) -> Slot:
    return Slot(*phrases.actions(uses, long, verbs, planned), choices=phrases.object_determiners)


DONE, PLANNED, LONG_PLANNED = _done(), _done(planned=True), _done(long=True, planned=True)
DOING = _done("g", long=True)
HABITUAL = phrases.HABITUAL
HOW_IT_IS_DONE = "consertar preparar encontrar abrir aprender construir pintar traduzir limpar lavar"
IN_GENERAL = Slot(*topics.plain_actions("k"), choices=lambda action: phrases.object_determiners(action)[:1])

# --- Somebody does something -----------------------------------------------------------------------------------------


@frame(SETTLED_SUBJECTS, DONE, POLARITY)
def past(who: Subject, thing: Object, negative: str) -> Sentence:
    """`Eles não procuraram aquela galinha.` = `They did not look for that hen.`"""
    return sentence(clause(who, thing[0].verb, "past", said(thing), negative))


@frame(SUBJECTS, DONE, circumstances.PAST)
def past_time(who: Subject, thing: Object, time: Text) -> Sentence:
    """`Fechamos cinco portas ontem.` = `We closed five doors yesterday.`"""
    return sentence(clause(who, thing[0].verb, "past", joined(said(thing), time)))


@frame(SUBJECTS, DONE, circumstances.PAST)
def time_past(who: Subject, thing: Object, time: Text) -> Sentence:
    """`Há quatro dias Ana comeu o arroz.` = `Four days ago Ana ate the rice.`"""
    return sentence(joined(time, clause(who, thing[0].verb, "past", said(thing))))


@frame(SUBJECTS, PLANNED, circumstances.FUTURE, POLARITY, weight=2)
def future(who: Subject, thing: Object, time: Text, negative: str) -> Sentence:
    """`O cozinheiro trará a mala velha em breve.` = `The cook will bring the old suitcase soon.`"""
    return sentence(clause(who, thing[0].verb, "future", joined(said(thing), time), negative))


@frame(SUBJECTS, _done("l", long=True), Slot(circumstances.SOMEDAY))
def someday(who: Subject, thing: Object, time: Text) -> Sentence:
    """`Ele traduzirá muitas cartas em março.` = `He will translate many letters in March.`"""
    return sentence(clause(who, thing[0].verb, "future", joined(said(thing), time)))


@frame(SUBJECTS, PLANNED, POLARITY)
def going_to(who: Subject, thing: Object, negative: str) -> Sentence:
    """`Minha irmã vai esconder o mapa.` = `My sister is going to hide the map.`"""
    return sentence(clause(who, thing[0].verb, "going", said(thing), negative))


@frame(SUBJECTS, HABITUAL, circumstances.HABIT, weight=2)
def habit(who: Subject, thing: Object, time: Text) -> Sentence:
    """`Abro uma porta pesada aos sábados.` = `I open a heavy door on Saturdays.`"""
    return sentence(clause(who, thing[0].verb, "present", joined(said(thing), time)))


@frame(SETTLED_SUBJECTS, HABITUAL, Slot(circumstances.OFTEN))
def often(who: Subject, thing: Object, adverb: Text) -> Sentence:
    """`Meu colega nunca usa estas garrafas.` = `My colleague never uses these bottles.`"""
    return sentence(clause(who, thing[0].verb, "present", said(thing), adverb=adverb[:2]))


@frame(SETTLED_SUBJECTS, IN_GENERAL, POLARITY)
def in_general(who: Subject, thing: Object, negative: str) -> Sentence:
    """`Os médicos não estudam italiano.` = `The doctors do not study Italian.`"""
    return sentence(clause(who, thing[0].verb, "present", said(thing), negative))


@frame(SUBJECTS, DOING, POLARITY)
def progressive(who: Subject, thing: Object, negative: str) -> Sentence:
    """`Miguel está escondendo três bolas.` = `Miguel is hiding three balls.`"""
    return sentence(clause(who, thing[0].verb, "progressive", said(thing), negative))


@frame(SETTLED_SUBJECTS, LONG_PLANNED, topics.MODALS, POLARITY)
def modal(who: Subject, thing: Object, tense: str, negative: str) -> Sentence:
    """`Maria deve ajudar três engenheiros.` = `Maria should help three engineers.`"""
    return sentence(clause(who, thing[0].verb, tense, said(thing), negative))


@frame(SETTLED_SUBJECTS, Slot(*phrases.actions(long=True), choices=phrases.definite_determiners))
def already(who: Subject, thing: Object) -> Sentence:
    """`Os gerentes já estudaram biologia.` = `The managers have already studied biology.`"""
    return sentence(clause(who, thing[0].verb, "perfect", said(thing), adverb=("já", "already")))


@frame(SETTLED_SUBJECTS, Slot(*phrases.actions(long=True), choices=phrases.definite_determiners))
def not_yet(who: Subject, thing: Object) -> Sentence:
    """`Ainda não corrigi esta história.` = `I have not corrected this story yet.`"""
    text = clause(who, thing[0].verb, "perfect", joined(said(thing), ("", "yet")), "ainda não")
    return sentence(text)


# --- Questions -------------------------------------------------------------------------------------------------------


@frame(phrases.ASKED, PLANNED, Slot(("past", "future", "can", "want", "should")))
def yes_or_no(who: Subject, thing: Object, tense: str) -> Sentence:
    """`Vocês querem pintar quatro quartos?` = `Do you want to paint four bedrooms?`"""
    return sentence(clause(who, thing[0].verb, tense, said(thing), question=True), "?")


@frame(phrases.ASKED, IN_GENERAL)
def ask_in_general(who: Subject, thing: Object) -> Sentence:
    """`Meus amigos ensinam francês?` = `Do my friends teach French?`"""
    return sentence(clause(who, thing[0].verb, "present", said(thing), question=True), "?")


@frame(topics.QUESTION_WORDS, phrases.ASKED, PLANNED, Slot(("past", "future")))
def where_when_why(word: Text, who: Subject, thing: Object, tense: str) -> Sentence:
    """`Onde nossa neta ajudou a atriz alta?` = `Where did our granddaughter help the tall actress?`"""
    return sentence(joined(word, clause(who, thing[0].verb, tense, said(thing), question=True)), "?")


@frame(phrases.ASKED, _done(long=True, verbs=HOW_IT_IS_DONE), Slot(("past", "future", "can", "should")))
def how(who: Subject, thing: Object, tense: str) -> Sentence:
    """`Como vocês abriram aquela porta?` = `How did you open that door?`"""
    return sentence(joined(("como", "how"), clause(who, thing[0].verb, tense, said(thing), question=True)), "?")


@frame(Slot((phrases.WHO,)), PLANNED, Slot(("past", "future", "can", "want")))
def who_did(who: Subject, thing: Object, tense: str) -> Sentence:
    """`Quem ajudará três gerentes tímidos?` = `Who will help three shy managers?`"""
    return sentence(clause(who, thing[0].verb, tense, said(thing)), "?")


@frame(phrases.ASKED, Slot(*topics.asked_actions(), choices=lambda _: (topics.HOW_MANY, topics.WHICH)))
def how_many(who: Subject, thing: Object) -> Sentence:
    """`Que rio bonito nossa prima visitou?` = `Which beautiful river did our cousin visit?`"""
    action, determiner = thing
    text = joined(noun_phrase(determiner, action.core), clause(who, action.verb, "past", ("", ""), question=True))
    return sentence(text, "?")


@frame(
    phrases.ASKED,
    Slot(topics.ASKED_VERBS),
    Slot(("past", "future", "progressive", "want")),
    circumstances.PLACES_OR_NONE,
)
def what(who: Subject, verb: Verb, tense: str, where: Text) -> Sentence:
    """`O que o irmão dela está comprando?` = `What is her brother buying?`"""
    return sentence(joined(("o que", "what"), clause(who, verb, tense, where, question=True)), "?")

"""Still more sentence frames of the built-in phrasebook: clauses within clauses, numbers, dates and times."""

from keras_transformer.data.grammar import calendar, circumstances, inflection as form, phrases, topics
from keras_transformer.data.grammar.clauses import (
    BE,
    BE_FOR_NOW,
    Core,
    Determiner,
    Subject,
    Text,
    clause,
    core,
    joined,
    noun_phrase,
    object_of,
    sentence,
    subject,
)
from keras_transformer.data.grammar.frames import DONE, PLANNED, Object, Sentence, frame, said
from keras_transformer.data.grammar.lexicon import Verb
from keras_transformer.data.grammar.phrases import SETTLED_SUBJECTS, SUBJECTS, Slot
from keras_transformer.data.grammar.statements import QUALITY, STATE, Graded, predicated

# --- Clauses within clauses ------------------------------------------------------------------------------------------


@frame(
    SETTLED_SUBJECTS,
    Slot(*topics.TOLD_ABOUT, choices=topics.one_or_more),
    Slot(circumstances.YESTERDAY),
)
def relative(who: Subject, thing: Object, time: Text) -> Sentence:
    """`A moto que comprei ontem é preta.` = `The motorcycle that I bought yesterday is black.`"""
    (verb, head, _), determiner = thing
    assert head.adjective is not None
    owner = subject(determiner, core(head.noun))
    inner = clause(who, verb, "past", time)
    outer = subject_with(owner, joined(("que", "that"), inner))
    word = Text(form.agreeing(head.adjective.pt, owner.gender, owner.plural), head.adjective.en)
    return sentence(clause(outer, BE, "present", word))


def subject_with(who: Subject, more: Text) -> Subject:
    """A subject with a clause behind it."""
    return Subject(f"{who.pt} {more.pt}", f"{who.en} {more.en}", who.person, who.gender)


@frame(Slot(circumstances.OPINIONS), QUALITY)
def opinion(intro: Text, thing: Graded) -> Sentence:
    """`Ana acha que o xadrez é difícil.` = `Ana thinks that chess is difficult.`"""
    return sentence(joined(intro, predicated(thing, BE, "present")))


@frame(Slot(circumstances.REPORTS), STATE)
def report(intro: Text, thing: Graded) -> Sentence:
    """`Eles disseram que o caminhão estava limpo.` = `They said that the truck was clean.`"""
    return sentence(joined(intro, predicated(thing, BE_FOR_NOW, "was")))


@frame(Slot(circumstances.OPINIONS), phrases.ASKED, DONE)
def knowing(intro: Text, who: Subject, thing: Object) -> Sentence:
    """`Sei que Rui esqueceu um telefone.` = `I know that Rui forgot a phone.`"""
    return sentence(joined(intro, clause(who, thing[0].verb, "past", said(thing))))


@frame(SUBJECTS, Slot(*phrases.actions("g"), choices=phrases.definite_determiners), circumstances.INTERRUPTIONS)
def while_(who: Subject, thing: Object, interruption: Text) -> Sentence:
    """`Eu estava lendo o romance dela quando a música parou.` = `I was reading her novel when the music stopped.`"""
    text = clause(who, thing[0].verb, "was_doing", said(thing))
    return sentence(joined(text, ("quando", "when"), interruption))


@frame(Slot(circumstances.CONDITIONS), SUBJECTS, PLANNED)
def condition(if_so: Text, who: Subject, thing: Object) -> Sentence:
    """`Se fizer frio, eu fecharei as janelas estreitas.` = `If it is cold, I will close the narrow windows.`"""
    pt, en, _ = clause(who, thing[0].verb, "future", said(thing))
    return sentence((f"{if_so.pt}, {pt}", f"{if_so.en}, {en}"))


@frame(SETTLED_SUBJECTS, circumstances.GOALS, Slot(circumstances.REASONS))
def reason(who: Subject, goal: Text, why: Text) -> Sentence:
    """`Não fui ao banco porque não havia tempo.` = `I did not go to the bank because there was no time.`"""
    return sentence(clause(who, Verb("ir", "go"), "past", joined(goal, ("porque", "because"), why), "não"))


@frame(topics.JUDGED, SETTLED_SUBJECTS)
def judgement(thing: Object, who: Subject) -> Sentence:
    """`Não levei a chave porque era cara.` = `I did not take the key because it was expensive.`"""
    (verb, head, _), determiner = thing
    assert head.adjective is not None
    word = form.agreeing(head.adjective.pt, head.noun.gender, determiner.plural)
    why = (f"porque {'eram' if determiner.plural else 'era'} {word}",
           f"because {'they were' if determiner.plural else 'it was'} {head.adjective.en}")  # fmt: skip
    plain = object_of(verb, noun_phrase(determiner, core(head.noun)))
    negative = "não" if head.adjective in topics.FAULTS else ""
    return sentence(clause(who, verb, "past", joined(plain, why), negative))


# --- Numbers, dates, times -------------------------------------------------------------------------------------------


@frame(SETTLED_SUBJECTS, Slot(range(3, 91)))
def age(who: Subject, years: int) -> Sentence:
    """`A advogada tem setenta e um anos.` = `The lawyer is seventy-one years old.`"""
    tail = Text(f"{form.portuguese_number(years)} anos", f"{form.english_number(years)} years old")
    pt, _, _ = clause(who, Verb("ter", "have"), "present", tail)
    _, en, _ = clause(who, BE, "present", tail)
    return sentence((pt, en))


@frame(Slot(topics.PRICED, topics.PRICED_DESCRIBED, choices=lambda _: phrases.POINTING), Slot(range(2, 100)))
def price(thing: tuple[Core, Determiner], amount: int) -> Sentence:
    """`A luva custa quarenta e oito reais.` = `The glove costs forty-eight reais.`"""
    tail = Text(f"{form.portuguese_number(amount)} reais", f"{form.english_number(amount)} reais")
    return sentence(clause(subject(thing[1], thing[0]), Verb("custar", "cost"), "present", tail))


@frame(Slot(topics.PRICED, topics.PRICED_DESCRIBED, choices=lambda _: phrases.POINTING))
def ask_price(thing: tuple[Core, Determiner]) -> Sentence:
    """`Quanto custa aquela vela branca?` = `How much does that white candle cost?`"""
    who = subject(thing[1], thing[0])
    _, en, _ = clause(who, Verb("custar", "cost"), "present", ("", ""), question=True)
    pt = f"quanto {form.portuguese_verb('custar', 'present', who.person)} {who.pt}"
    return sentence((pt, f"how much {en}"), "?")


@frame(Slot(calendar.DATED), Slot(calendar.DATES))
def date(what: Text, day: Text) -> Sentence:
    """`A aula será no dia cinco de agosto.` = `The class will be on the fifth of August.`"""
    return sentence(joined(what, day))


@frame(Slot(calendar.SCHEDULES, choices=calendar.schedule_times))
def schedule(thing: tuple[Text, Text]) -> Sentence:
    """`A aula termina à uma hora da tarde.` = `The class ends at one o'clock in the afternoon.`"""
    return sentence(joined(*thing))


@frame(SETTLED_SUBJECTS, Slot(calendar.ROUTINES, choices=calendar.ROUTINES.__getitem__))
def routine(who: Subject, thing: tuple[circumstances.Stay, Text]) -> Sentence:
    """`Janto às sete e dez da noite.` = `I have dinner at ten past seven in the evening.`"""
    what, time = thing
    return sentence(clause(who, what.verb, "present", joined(what.place, time)))


@frame(Slot(calendar.SOMEWHERE), Slot(calendar.TOLD))
def clock(where: Text, time: Text) -> Sentence:
    """`Na China são nove e meia da manhã.` = `In China it is half past nine in the morning.`"""
    return sentence(joined(where, time))

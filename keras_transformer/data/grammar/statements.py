"""More sentence frames of the built-in phrasebook: what things are, where, who has and gives them."""

from keras_transformer.data.grammar import circumstances, inflection as form, phrases, topics
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
    sentence,
    subject,
)
from keras_transformer.data.grammar.frames import Object, Sentence, frame, said
from keras_transformer.data.grammar.lexicon import Noun, Verb
from keras_transformer.data.grammar.phrases import POLARITY, SETTLED_SUBJECTS, SUBJECTS, THE, Slot

Graded = tuple[Core, tuple[Determiner, Text]]
QUALITY = Slot(*topics.qualities(), choices=topics.graded)
STATE = Slot(*topics.states(), choices=topics.graded)
PRESENT_OR_WAS = Slot(("present", "was"))


def predicated(thing: Graded, verb: Verb, tense: str, negative: str = "", question: bool = False) -> Text:
    """`o carro dela é muito caro`: a core whose adjective becomes the predicate."""
    (noun, adjective, _), (determiner, degree) = thing
    assert adjective is not None
    who = subject(determiner, core(noun))
    word = Text(form.agreeing(adjective.pt, who.gender, who.plural), adjective.en)
    return clause(who, verb, tense, joined(degree, word), negative, question)


@frame(QUALITY, PRESENT_OR_WAS, POLARITY)
def quality(thing: Graded, tense: str, negative: str) -> Sentence:
    """`Esta montanha não era muito longa.` = `This mountain was not very long.`"""
    return sentence(predicated(thing, BE, tense, negative))


@frame(STATE, PRESENT_OR_WAS, POLARITY)
def state(thing: Graded, tense: str, negative: str) -> Sentence:
    """`Meu macarrão não estava delicioso.` = `My pasta was not delicious.`"""
    return sentence(predicated(thing, BE_FOR_NOW, tense, negative))


@frame(QUALITY, PRESENT_OR_WAS)
def ask_quality(thing: Graded, tense: str) -> Sentence:
    """`A tartaruga do cozinheiro é velha?` = `Is the cook's turtle old?`"""
    return sentence(predicated(thing, BE, tense, question=True), "?")


@frame(STATE, PRESENT_OR_WAS)
def ask_state(thing: Graded, tense: str) -> Sentence:
    """`O sofá do cozinheiro está quebrado?` = `Is the cook's sofa broken?`"""
    return sentence(predicated(thing, BE_FOR_NOW, tense, question=True), "?")


@frame(topics.MOODY, topics.MOODS, PRESENT_OR_WAS, POLARITY)
def mood(who: Subject, word: Text, tense: str, negative: str) -> Sentence:
    """`João não estava muito preocupado.` = `João was not very worried.`"""
    agreed = Text(form.agreeing(word.pt, who.gender, who.plural), word.en)
    return sentence(clause(who, BE_FOR_NOW, tense, joined(topics.VERY, agreed), negative))


@frame(topics.TRADED, Slot(topics.TRADES), POLARITY)
def trade(who: Subject, trades: tuple[Noun, Noun], negative: str) -> Sentence:
    """`Helena e Ana são gerentes.` = `Helena and Ana are managers.`"""
    determiner = topics.UNSAID_PL if who.plural else topics.UNSAID_A
    return sentence(clause(who, BE, "present", noun_phrase(determiner, core(trades[who.gender == "f"])), negative))


@frame(Slot(topics.COMPARISONS, choices=topics.determiner_pairs))
def comparison(thing: tuple[topics.Comparison, tuple[Determiner, Determiner]]) -> Sentence:
    """`A casa é maior do que a biblioteca.` = `The house is bigger than the library.`"""
    what, determiners = thing
    left, right = (subject(d, core(noun)) for d, noun in zip(determiners, what.nouns, strict=True))
    word = topics.compared(what.adjective, left)
    return sentence(clause(left, BE, "present", joined(word, ("do que", "than"), (right.pt, right.en))))


@frame(topics.LIKENESSES, Slot(phrases.PEOPLE_NAMED))
def taller(what: topics.Likeness, other: Subject) -> Sentence:
    """`Meu tio é mais rico do que Carlos.` = `My uncle is richer than Carlos.`"""
    word = topics.compared(what.adjective, what.who)
    return sentence(clause(what.who, BE, "present", joined(word, ("do que", "than"), (other.pt, other.en))))


@frame(
    Slot(
        *topics.qualities("vehicle building clothes device outdoors furniture instrument text"),
        choices=circumstances.scopes,
    )
)
def superlative(thing: tuple[Core, Text]) -> Sentence:
    """`Este é o violino mais novo da loja.` = `This is the newest violin in the store.`"""
    head, scope = thing
    assert head.adjective is not None
    article, noun = ("a", head.noun.pt) if head.noun.gender == "f" else ("o", head.noun.pt)
    word = topics.compared(head.adjective, subject(THE, head)).pt
    spoken = f"{article} {noun} {word}" if word.startswith("mais ") else f"{article} {word} {noun}"
    english = f"the {form.superlative(head.adjective.en)} {head.noun.en}"
    this = Subject("esta" if head.noun.gender == "f" else "este", "this", 1)
    return sentence(clause(this, BE, "present", joined((spoken, english), scope)))


@frame(topics.COUNTED_THINGS, circumstances.SPOTS)
def there_is(thing: tuple[Core, Determiner], where: Text) -> Sentence:
    """`Há muitos romances nesta cadeira.` = `There are many novels on this chair.`"""
    head, determiner = thing
    there = Text("há", "there are" if determiner.plural else "there is")
    return sentence(joined(there, noun_phrase(determiner, head), where))


@frame(topics.OUTSIDERS)
def there_is_outside(thing: tuple[Core, tuple[Determiner, Text]]) -> Sentence:
    """`Há muitos cavalos na fazenda.` = `There are many horses on the farm.`"""
    head, (determiner, where) = thing
    there = Text("há", "there are" if determiner.plural else "there is")
    return sentence(joined(there, noun_phrase(determiner, head), where))


@frame(Slot(*topics.PLACED, choices=phrases.thing_determiners), circumstances.SPOTS, Slot(("present", "was")), POLARITY)
def location(thing: tuple[Core, Determiner], where: Text, tense: str, negative: str) -> Sentence:
    """`Os poemas tristes não estão na cadeira.` = `The sad poems are not on the chair.`"""
    return sentence(clause(subject(thing[1], thing[0]), BE_FOR_NOW, tense, where, negative))


@frame(Slot(*topics.PLACED, choices=phrases.thing_determiners), PRESENT_OR_WAS)
def ask_location(thing: tuple[Core, Determiner], tense: str) -> Sentence:
    """`Onde estava a xícara azul do aluno?` = `Where was the student's blue cup?`"""
    who = subject(thing[1], thing[0])
    _, en, _ = clause(who, BE_FOR_NOW, tense, ("", ""), question=True)
    spoken = form.portuguese_verb("estar", "present" if tense == "present" else "imperfect", who.person)
    return sentence((f"onde {spoken} {who.pt}", f"where {en}"), "?")


# --- Going, living, giving -------------------------------------------------------------------------------------------


@frame(SUBJECTS, circumstances.GOALS, circumstances.PAST)
def went(who: Subject, goal: Text, time: Text) -> Sentence:
    """`O amigo dele foi à fábrica ontem.` = `His friend went to the factory yesterday.`"""
    return sentence(clause(who, Verb("ir", "go"), "past", joined(goal, time)))


@frame(SUBJECTS, circumstances.GOALS, circumstances.FUTURE)
def going(who: Subject, goal: Text, time: Text) -> Sentence:
    """`Vocês vão à praia depois de amanhã.` = `You are going to the beach the day after tomorrow.`"""
    pt, _, _ = clause(who, Verb("ir", "go"), "present", joined(goal, time))
    _, en, _ = clause(who, Verb("ir", "go"), "progressive", joined(goal, time))
    return sentence((pt, en))


@frame(SUBJECTS, Slot(circumstances.JOURNEYS), Slot(("past",), ("future",)), circumstances.ANY_TIMES)
def journey(who: Subject, goal: Text, tense: str, times: tuple[Text, Text]) -> Sentence:
    """`Eu viajei para São Paulo há seis dias.` = `I traveled to São Paulo six days ago.`"""
    return sentence(clause(who, Verb("viajar", "travel"), tense, joined(goal, times[tense == "future"])))


@frame(SETTLED_SUBJECTS, Slot(circumstances.HOMES), POLARITY)
def lives(who: Subject, home: Text, negative: str) -> Sentence:
    """`O amigo dele não mora na Argentina.` = `His friend does not live in Argentina.`"""
    return sentence(clause(who, Verb("morar", "live"), "present", home, negative))


@frame(SUBJECTS, circumstances.STAYS, Slot(("past",), ("future",)), circumstances.ANY_TIMES, weight=2)
def somewhere(who: Subject, stay: circumstances.Stay, tense: str, times: tuple[Text, Text]) -> Sentence:
    """`Cantei na escola na semana passada.` = `I sang at the school last week.`"""
    return sentence(clause(who, stay.verb, tense, joined(stay.place, times[tense == "future"])))


@frame(SUBJECTS, circumstances.STAYS, POLARITY)
def somewhere_now(who: Subject, stay: circumstances.Stay, negative: str) -> Sentence:
    """`Estamos estudando na universidade.` = `We are studying at the university.`"""
    return sentence(clause(who, stay.verb, "progressive", stay.place, negative))


@frame(SUBJECTS, circumstances.PATHS, Slot(("past",), ("future",)), circumstances.ANY_TIMES)
def through(who: Subject, stay: circumstances.Stay, tense: str, times: tuple[Text, Text]) -> Sentence:
    """`Miguel caminhará pelos campos em breve.` = `Miguel will walk through the fields soon.`"""
    return sentence(clause(who, stay.verb, tense, joined(stay.place, times[tense == "future"])))


@frame(SETTLED_SUBJECTS, topics.GIFTS, topics.RECIPIENTS, Slot(("past", "future")))
def giving(who: Subject, gift: Object, recipient: Text, tense: str) -> Sentence:
    """`Eu darei o relógio moderno à médica.` = `I will give the modern watch to the doctor.`"""
    return sentence(clause(who, gift[0].verb, tense, joined(said(gift), recipient)))


@frame(topics.THIRD_PERSONS, topics.CLITICS, topics.GIFTS, Slot(("past", "future")))
def giving_me(who: Subject, pronoun: Text, gift: Object, tense: str) -> Sentence:
    """`Ela me deu um livro interessante.` = `She gave me an interesting book.`"""
    rest = Text(said(gift).pt, f"{pronoun.en} {said(gift).en}")
    return sentence(clause(who, gift[0].verb, tense, rest, clitic=pronoun.pt))


@frame(topics.THIRD_PERSONS, topics.CLITICS, Slot(topics.TOUCHING), circumstances.PLACES_OR_NONE, circumstances.PAST)
def seeing_me(who: Subject, pronoun: Text, verb: Verb, where: Text, time: Text) -> Sentence:
    """`A médica te abraçou há seis dias.` = `The doctor hugged you six days ago.`"""
    rest = joined(("", pronoun.en), where, time)
    return sentence(clause(who, verb, "past", rest, clitic=pronoun.pt))


@frame(SETTLED_SUBJECTS, Slot(*topics.LIKING, choices=topics.liked), POLARITY)
def likes(who: Subject, thing: Object, negative: str) -> Sentence:
    """`Minhas amigas odeiam este queijo.` = `My friends hate this cheese.`"""
    return sentence(clause(who, thing[0].verb, "present", said(thing), negative))


@frame(phrases.ASKED, Slot(*topics.LIKING, choices=topics.liked))
def ask_likes(who: Subject, thing: Object) -> Sentence:
    """`Nossa amiga adora aqueles filmes?` = `Does our friend love those movies?`"""
    return sentence(clause(who, thing[0].verb, "present", said(thing), question=True), "?")


@frame(SETTLED_SUBJECTS, Slot(*topics.HAVING, choices=topics.had))
def has(who: Subject, thing: Object) -> Sentence:
    """`Rui quer quatro violões bonitos.` = `Rui wants four beautiful guitars.`"""
    return sentence(clause(who, thing[0].verb, "present", said(thing)))


@frame(Slot(*phrases.actions("p", long=True), choices=topics.known), topics.AGENTS, Slot(("past", "future")), weight=3)
def passive(thing: Object, agent: Text, tense: str) -> Sentence:
    """`A mensagem será corrigida por Rui.` = `The message will be corrected by Rui.`"""
    (verb, head, _), determiner = thing
    who = subject(determiner, head)
    done = Text(
        form.agreeing(form.portuguese_participle(verb.pt), who.gender, who.plural), form.english_past(verb.en, True)
    )
    return sentence(clause(who, BE, tense, joined(done, agent)))


@frame(Slot(*phrases.actions("i"), choices=phrases.definite_determiners), POLARITY, Slot(("",), ("por favor",)))
def request(thing: Object, negative: str, please: str) -> Sentence:
    """`Abrace a vaca pequena, por favor.` = `Hug the small cow, please.`"""
    verb = thing[0].verb
    pt, en, _ = joined((negative, "do not" if negative else ""), (form.imperative(verb.pt), verb.en), said(thing))
    return sentence((f"{pt}, {please}", f"{en}, please") if please else (pt, en))

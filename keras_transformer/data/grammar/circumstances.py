"""Where, when and why: the adverbials of the built-in phrasebook."""

from typing import NamedTuple

from keras_transformer.data.grammar import inflection as form
from keras_transformer.data.grammar.clauses import (
    Core,
    Determiner,
    Pair,
    Subject,
    Text,
    after_preposition,
    clause,
    core,
    joined,
    noun_phrase,
    subject,
)
from keras_transformer.data.grammar.lexicon import (
    ADJECTIVES,
    CITIES,
    COUNTRIES,
    MONTHS,
    NOUNS,
    WEEKDAYS,
    Noun,
    Verb,
)
from keras_transformer.data.grammar.phrases import PEOPLE, PEOPLE_NAMED, THAT, THE, THE_PL, THIS, Slot, nouns

# In English one is "on" or "at" these places, and "in" all others.
PLACE_PREPOSITIONS = {"praia": "on", "mesa": "on", "cadeira": "on", "cama": "on", "sofá": "on", "rua": "on",
    "ilha": "on",
    "montanha": "on", "fazenda": "on", "ponte": "on", "mercado": "at", "escola": "at", "hospital": "at", "hotel": "at",
    "restaurante": "at", "universidade": "at", "aeroporto": "at", "estação": "at", "teatro": "at", "biblioteca": "at",
    "zoológico": "at", "museu": "at", "igreja": "at", "festa": "at", "banco": "at", "farmácia": "at", "padaria": "at",
    "loja": "at", "fábrica": "at"}  # fmt: skip


def place(noun: Noun, determiner: Determiner = THE) -> Text:
    """`na praia` = `on the beach`."""
    english = PLACE_PREPOSITIONS.get(noun.pt, "in")
    return after_preposition("em", english, noun_phrase(determiner, core(noun)))


PLACE_NOUNS = nouns("outdoors", "workplace", "building", "room")
HOME = Text("em casa", "at home")
PLACES = [place(noun) for noun in PLACE_NOUNS if noun.pt not in ("ponte", "torre", "casa", "ilha")]
IN_CITIES = [Text(f"em {pt}", f"in {en}") for pt, en in CITIES]
IN_COUNTRIES = [after_preposition("em", "in", country) for country in COUNTRIES]

YESTERDAY = [
    Text("ontem", "yesterday"),
    Text("ontem à noite", "last night"),
    Text("na semana passada", "last week"),
    *[Text(f"há {form.portuguese_number(n)} dias", f"{form.english_number(n)} days ago") for n in range(2, 7)],
]


def _weekday(pt: str, en: str, when: str) -> Text:
    masculine = pt in ("sábado", "domingo")
    if when == "past":
        return Text(f"no {pt} passado" if masculine else f"na {pt} passada", f"last {en}")
    return Text(f"no próximo {pt}" if masculine else f"na próxima {pt}", f"next {en}")


LAST_DAYS = [_weekday(pt, en, "past") for pt, en in WEEKDAYS]
NEXT_DAYS = [_weekday(pt, en, "next") for pt, en in WEEKDAYS]
LONG_AGO = [
    Text("no ano passado", "last year"),
    Text("no mês passado", "last month"),
    *[
        Text(f"há {form.portuguese_number(n, gender)} {pt}", f"{form.english_number(n)} {en} ago")
        for gender, pt, en in (("m", "anos", "years"), ("m", "meses", "months"), ("f", "semanas", "weeks"))
        for n in range(2, 13)
    ],
]
TOMORROW = [
    Text("amanhã", "tomorrow"),
    Text("depois de amanhã", "the day after tomorrow"),
    Text("hoje à noite", "tonight"),
    Text("em breve", "soon"),
    Text("na próxima semana", "next week"),
]
SOMEDAY = [
    Text("no próximo ano", "next year"),
    Text("no próximo mês", "next month"),
    *[Text(f"em {pt}", f"in {en}") for pt, en in MONTHS],
]
EVERY_DAY = [
    Text("todos os dias", "every day"),
    Text("todas as semanas", "every week"),
    Text("de manhã", "in the morning"),
    Text("à tarde", "in the afternoon"),
    Text("à noite", "at night"),
]
ON_DAYS = [
    Text(f"{'aos' if pt in ('sábado', 'domingo') else 'às'} {form.portuguese_plural(pt)}", f"on {en}s")
    for pt, en in (*WEEKDAYS[5:], *((pt.replace("-feira", "s-feira"), en) for pt, en in WEEKDAYS[:5]))
]
OFTEN = [
    Text("sempre", "always"),
    Text("nunca", "never"),
    Text("raramente", "rarely"),
    Text("geralmente", "usually"),
]
PAST = Slot(YESTERDAY, LAST_DAYS)
FUTURE = Slot(TOMORROW, NEXT_DAYS)
HABIT = Slot(EVERY_DAY, ON_DAYS)
PLAIN = Text("", "")
PLACES_OR_NONE = Slot((PLAIN,), PLACES)
ANY_TIMES = Slot(zip((*YESTERDAY, *LAST_DAYS), (*TOMORROW, *NEXT_DAYS), strict=False))


def texts(table: str) -> list[Text]:
    """Fixed texts from rows of `Portuguese = English`."""
    rows = (row.split(" = ") for row in " ".join(table.split()).split("; "))
    return [Text(pt, en) for pt, en in rows]


def _spot(pt: str, en: str, names: str) -> list[Text]:
    return [
        after_preposition(pt, en, noun_phrase(determiner, core(NOUNS[name])))
        for name in names.split()
        for determiner in (THE, THIS, THAT)
    ]


def _behind(pt: str, en: str, names: str) -> list[Text]:
    """A preposition of several words: `debaixo da mesa`."""
    return [Text(f"{pt} {text.pt}", text.en) for text in _spot("de", en, names)]


SPOTS = Slot(
    _spot("em", "on", "mesa cadeira cama sofá"),
    _spot("em", "in", "armário gaveta cozinha quarto sala garagem"),
    _behind("debaixo", "under", "mesa cadeira cama sofá"),
    _behind("atrás", "behind", "porta armário sofá cama geladeira"),
    _behind("perto", "near", "janela porta mesa cama"),
    _behind("ao lado", "next to", "cama porta geladeira computador telefone"),
)
OUTSIDE = {
    "beast": "floresta zoológico ilha",
    "animal": "jardim parque fazenda rua campo",
    "person": "praia praça mercado parque rua museu",
}
SCOPES = texts("do mundo = in the world; da cidade = in the city; do Brasil = in Brazil; da loja = in the store")


def scopes(head: Core) -> list[Text]:
    """Where a thing may be the biggest: places are in no store, and only places are in the country."""
    return SCOPES[:3] if head.noun.kind in ("building", "outdoors") else [*SCOPES[:2], SCOPES[3]]


GOALS = Slot(
    [
        Text(form.contracted("a", noun_phrase(THE, core(noun)).pt), f"to the {noun.en}", (("ir", noun.pt),))
        for noun in nouns("outdoors", "workplace", "building")
        if noun.pt not in ("casa", "torre", "ponte")
    ]
)
JOURNEYS = [Text(f"para {pt}", f"to {en}", (("viajar", pt),)) for pt, en in CITIES + COUNTRIES]
HOMES = [
    *[Text(f"em {pt}", f"in {en}", (("morar", pt),)) for pt, en in CITIES],
    *[Text(form.contracted("em", pt), f"in {en}", (("morar", pt),)) for pt, en in COUNTRIES],
    *[
        Text(f"perto {form.contracted('de', noun_phrase(d, core(noun)).pt)}", f"near {noun_phrase(d, core(noun)).en}",
             (("morar", noun.pt),))
        for noun in nouns("outdoors", "workplace", "building", "water")
        if noun.pt not in ("casa", "cidade", "ilha")
        for d in (THE, THIS, THAT)
    ],
]  # fmt: skip


class Stay(NamedTuple):
    """Something that one does in some place."""

    verb: Verb
    place: Text
    pairs: tuple[Pair, ...]


_STAYS = """
    dormir = sleep = quarto sala hotel hospital jardim;
    trabalhar = work = hospital hotel museu biblioteca loja fábrica restaurante banco farmácia padaria
        universidade escritório fazenda aeroporto mercado zoológico;
    cantar = sing = igreja teatro praça escola;
    esperar = wait = estação aeroporto hospital praça hotel;
    dançar = dance = praça teatro sala praia rua;
    nadar = swim = rio lago piscina mar;
    correr = run = parque praia floresta campo rua;
    descansar = rest = sala quarto praia jardim hotel fazenda;
    estudar = study = biblioteca quarto universidade escola;
    cozinhar = cook = cozinha restaurante;
    almoçar = have lunch = restaurante escritório cozinha hotel universidade;
    jantar = have dinner = restaurante hotel sala cozinha;
    brincar = play = parque jardim praia quarto praça rua;
    caminhar = walk = praia parque floresta praça rua
"""
STAYS = Slot(
    *[
        [Stay(Verb(pt, en), place(NOUNS[name]), ((pt, name),)) for name in names.split()]
        for pt, en, names in (row.split(" = ") for row in " ".join(_STAYS.split()).split("; "))
    ]
)
_CROSSED = "parque floresta cidade jardim mercado rua campo montanha"
PATHS = Slot(
    [
        Stay(
            Verb(pt, en),
            after_preposition("por", "through", noun_phrase(determiner, core(NOUNS[name]))),
            ((pt, name),),
        )
        for pt, en in (("caminhar", "walk"), ("correr", "run"), ("viajar", "travel"), ("dirigir", "drive"))
        for name in _CROSSED.split()
        if (pt in ("caminhar", "correr")) != (name == "montanha")
        for determiner in ((THE_PL,) if name in ("rua", "campo", "montanha") else (THE, THIS, THAT))
    ]
)

OPINIONS = texts("""acho que = I think that; sei que = I know that; ela acha que = she thinks that;
    ele acha que = he thinks that; ela sabe que = she knows that; todos sabem que = everybody knows that;
    eles acham que = they think that; sabemos que = we know that; meus amigos acham que = my friends think that;
    Ana acha que = Ana thinks that; Pedro sabe que = Pedro knows that; minha mãe acha que = my mother thinks that""")
REPORTS = [
    joined(clause(who, Verb("dizer", "say"), "past", PLAIN), ("que", "that"))
    for who in (*PEOPLE_NAMED, *PEOPLE, Subject("ela", "she", 1), Subject("ele", "he", 1), Subject("eles", "they", 3))
]
_COMING = (Verb("chegar", "arrive"), Verb("sair", "leave"), Verb("entrar", "come in"))
INTERRUPTIONS = Slot(
    texts("""o telefone tocou = the phone rang; a campainha tocou = the doorbell rang;
        a chuva começou = the rain started; a luz acabou = the power went out; a música parou = the music stopped"""),
    [clause(who, verb, "past", PLAIN) for who in (*PEOPLE, *PEOPLE_NAMED) for verb in _COMING],
)
CONDITIONS = [
    *texts("""se chover = if it rains; se chover amanhã = if it rains tomorrow; se nevar = if it snows;
        se fizer sol = if it is sunny; se eu tiver tempo = if I have time; se você quiser = if you want;
        se houver tempo = if there is time; quando a chuva parar = when the rain stops;
        quando o filme terminar = when the movie ends; quando a aula terminar = when the class ends;
        quando as lojas abrirem = when the stores open; se fizer frio = if it is cold;
        se você puder = if you can; quando eu chegar em casa = when I get home"""),
    *[
        Text(f"quando {who.pt} {form.portuguese_verb('chegar', 'future_subjunctive', who.person)}",
             f"when {who.en} {form.third_person('arrive') if who.person == 1 else 'arrive'}")
        for who in (*PEOPLE_NAMED, *PEOPLE)
    ],
]  # fmt: skip


def _while_so(noun_pt: str, adjective_pt: str) -> Text:
    """`o trem estava atrasado` = `the train was late`, with its pair."""
    noun, adjective = NOUNS[noun_pt], ADJECTIVES[adjective_pt]
    word = form.agreeing(adjective.pt, noun.gender, False)
    who = subject(THE, core(noun))
    text = clause(who, Verb("estar", "be"), "was", (word, adjective.en))
    return Text(text.pt, text.en, ((adjective.pt, noun.pt),))


_STATES_OF_AFFAIRS = (
    "trem atrasado, ônibus atrasado, ônibus cheio, trem cheio, carro quebrado, bicicleta quebrado, moto quebrado, "
    "ponte fechado, portão fechado, carro sujo"
)
REASONS = [
    *texts("""estava chovendo = it was raining; estava nevando = it was snowing; era tarde = it was late;
        estava muito frio = it was very cold; estava muito quente = it was very hot;
        não havia táxis = there were no taxis; não havia tempo = there was no time"""),
    *[_while_so(*row.split()) for row in _STATES_OF_AFFAIRS.split(", ")],
]

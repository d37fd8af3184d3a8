"""Dates and times of day, and what happens then."""

from keras_transformer.data.grammar import inflection as form
from keras_transformer.data.grammar.circumstances import PLAIN, Stay, texts
from keras_transformer.data.grammar.clauses import (
    Text,
    after_preposition,
    core,
    joined,
    noun_phrase,
)
from keras_transformer.data.grammar.lexicon import (
    CITIES,
    COUNTRIES,
    MONTHS,
    NOUNS,
    WEEKDAYS,
    Verb,
)
from keras_transformer.data.grammar.phrases import THE, THIS, nouns

DATES = [
    Text(f"{'primeiro' if n == 1 else form.portuguese_number(n)} de {pt}", f"the {form.english_ordinal(n)} of {en}")
    for number, (pt, en) in enumerate(MONTHS)
    for n in range(1, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[number] + 1)
]
DATED = [
    *texts("hoje é = today is; amanhã será = tomorrow will be; ontem foi = yesterday was"),
    *[Text(f"hoje é {pt},", f"today is {en},") for pt, en in WEEKDAYS],
    *[
        Text(f"{noun_phrase(THE, core(noun)).pt} {pt} no dia", f"the {noun.en} {en} on")
        for noun in nouns("event")
        for pt, en in (("foi", "was"), ("será", "will be"))
    ],
]

_MINUTES = (("e dez", "ten past {}"), ("e quinze", "a quarter past {}"), ("e vinte", "twenty past {}"),
            ("e meia", "half past {}"))  # fmt: skip
_DAY = (("da manhã", "in the morning", range(5, 12)), ("da tarde", "in the afternoon", range(1, 7)),
        ("da noite", "in the evening", range(7, 10)))  # fmt: skip
CLOCK = [
    (hour, Text(f"{form.portuguese_number(hour, 'f')} {minutes} {part}", f"{past} {when}"))
    for part, when, hours in _DAY
    for hour in hours
    for minutes, past in (
        ("hora" if hour == 1 else "horas", f"{form.english_number(hour)} o'clock"),
        *[(pt, en.format(form.english_number(hour))) for pt, en in _MINUTES],
    )
]


def _clock_times(part: str, hours: range = range(1, 13)) -> list[Text]:
    return [
        Text(f"{'à' if hour == 1 else 'às'} {text.pt}", f"at {text.en}")
        for hour, text in CLOCK
        if text.pt.endswith(part) and hour in hours
    ]


MORNING, AFTERNOON, EVENING = _clock_times("manhã"), _clock_times("tarde"), _clock_times("noite")
NOON, MIDNIGHT = [Text("ao meio-dia", "at noon")], [Text("à meia-noite", "at midnight")]
TOLD = [Text(f"{'é' if hour == 1 else 'são'} {text.pt}", f"it is {text.en}") for hour, text in CLOCK]
SOMEWHERE = [PLAIN, *[Text(f"em {pt}", f"in {en}") for pt, en in CITIES]]
SOMEWHERE += [after_preposition("em", "in", country) for country in COUNTRIES]
_HAPPENINGS = (
    ("trem ônibus avião barco", (("chega", "arrives"), ("sai", "leaves"))),
    ("festa reunião aula prova filme concerto desfile corrida", (("começa", "begins"), ("termina", "ends"))),
    (
        "loja banco farmácia padaria museu biblioteca zoológico mercado restaurante",
        (("abre", "opens"), ("fecha", "closes")),
    ),
)
SCHEDULES = [
    joined(noun_phrase(determiner, core(NOUNS[name])), action)
    for names, happenings in _HAPPENINGS
    for name in names.split()
    for determiner in (THE, THIS)
    for action in happenings
] + [Text(f"o trem para {pt} sai", f"the train to {en} leaves") for pt, en in CITIES]


def schedule_times(what: Text) -> list[Text]:
    """When it may be: nothing opens at night, no party begins in the morning."""
    if what.pt.endswith("abre"):
        return MORNING
    if any(f" {late} " in what.pt for late in ("festa", "filme", "concerto", "desfile")):
        return [*AFTERNOON, *EVENING]
    return [*([] if what.pt.endswith("fecha") else MORNING), *NOON, *AFTERNOON, *EVENING]


ROUTINES = {
    Stay(Verb("acordar", "wake up"), PLAIN, ()): MORNING,
    Stay(Verb("almoçar", "have lunch"), PLAIN, ()): NOON + _clock_times("tarde", range(1, 3)),
    Stay(Verb("jantar", "have dinner"), PLAIN, ()): EVENING,
    Stay(Verb("sair", "leave"), Text("de casa", "home"), ()): MORNING,
    Stay(Verb("chegar", "get"), Text("em casa", "home"), ()): _clock_times("tarde", range(4, 7)) + EVENING,
    Stay(Verb("ir", "go"), Text("para a cama", "to bed"), ()): EVENING + MIDNIGHT,
}

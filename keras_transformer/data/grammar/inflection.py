"""The forms of Portuguese and English words that the phrasebook needs: rules here, exceptions in small tables."""

import functools

VOWELS = "aeiou"

# Persons: 0 "eu", 1 "ele, ela, você", 2 "nós", 3 "eles, elas, vocês".
_ENDINGS = {
    "ar": {"present": "o a amos am", "preterite": "ei ou amos aram", "imperfect": "ava ava ávamos avam"},
    "er": {"present": "o e emos em", "preterite": "i eu emos eram", "imperfect": "ia ia íamos iam"},
    "ir": {"present": "o e imos em", "preterite": "i iu imos iram", "imperfect": "ia ia íamos iam"},
}
_IRREGULAR = {
    "ser": {"present": "sou é somos são", "preterite": "fui foi fomos foram", "imperfect": "era era éramos eram"},
    "estar": {"present": "estou está estamos estão", "preterite": "estive esteve estivemos estiveram"},
    "ir": {"present": "vou vai vamos vão", "preterite": "fui foi fomos foram"},
    "ter": {"present": "tenho tem temos têm", "preterite": "tive teve tivemos tiveram"},
    "dar": {"present": "dou dá damos dão", "preterite": "dei deu demos deram"},
    "ver": {"present": "vejo vê vemos veem", "preterite": "vi viu vimos viram"},
    "ler": {"present": "leio lê lemos leem", "preterite": "li leu lemos leram"},
    "fazer": {"present": "faço faz fazemos fazem", "preterite": "fiz fez fizemos fizeram"},
    "dizer": {"present": "digo diz dizemos dizem", "preterite": "disse disse dissemos disseram"},
    "trazer": {"present": "trago traz trazemos trazem", "preterite": "trouxe trouxe trouxemos trouxeram"},
    "saber": {"present": "sei sabe sabemos sabem", "preterite": "soube soube soubemos souberam"},
    "poder": {"present": "posso pode podemos podem", "preterite": "pude pôde pudemos puderam"},
    "querer": {"present": "quero quer queremos querem", "preterite": "quis quis quisemos quiseram"},
    "sair": {"present": "saio sai saímos saem", "preterite": "saí saiu saímos saíram"},
    "construir": {"present": "construo constrói construímos constroem",
                  "preterite": "construí construiu construímos construíram"},
    "traduzir": {"present": "traduzo traduz traduzimos traduzem"},
    "odiar": {"present": "odeio odeia odiamos odeiam"},
    "dormir": {"present": "durmo dorme dormimos dormem"},
    "ouvir": {"present": "ouço ouve ouvimos ouvem"},
    "pedir": {"present": "peço pede pedimos pedem"},
    "perder": {"present": "perco perde perdemos perdem"},
    "preferir": {"present": "prefiro prefere preferimos preferem"},
}  # fmt: skip
_FUTURE_STEMS = {"fazer": "far", "dizer": "dir", "trazer": "trar"}
_SUBJUNCTIVES = {"ser": "seja", "estar": "esteja", "ir": "vá", "dar": "dê", "saber": "saiba", "querer": "queira"}
_PARTICIPLES = {
    "abrir": "aberto",
    "escrever": "escrito",
    "ver": "visto",
    "fazer": "feito",
    "dizer": "dito",
    "limpar": "limpo",
}
# The last letter of a stem changes before some vowels, so that its sound stays.
_BEFORE_E = {"c": "qu", "g": "gu", "ç": "c"}
_BEFORE_A = {"c": "ç", "g": "j"}


def _spelled(stem: str, ending: str, conjugation: str) -> str:
    changes = _BEFORE_E if conjugation == "ar" and ending[0] in "ei" else {}
    if conjugation != "ar" and ending[0] in "ao":
        changes = _BEFORE_A
    return stem[:-1] + changes.get(stem[-1], stem[-1]) + ending


@functools.cache
def portuguese_verb(infinitive: str, tense: str, person: int) -> str:
    """One form of a verb; `tense` is present, preterite, imperfect, future or future_subjunctive."""
    if tense == "future":
        return _FUTURE_STEMS.get(infinitive, infinitive) + ("ei", "á", "emos", "ão")[person]
    if tense == "future_subjunctive":  # fizeram -> fizer
        return portuguese_verb(infinitive, "preterite", 3)[:-2] + ("", "", "mos", "em")[person]
    if tense in _IRREGULAR.get(infinitive, {}):
        return _IRREGULAR[infinitive][tense].split()[person]
    stem, conjugation = infinitive[:-2], infinitive[-2:]
    return _spelled(stem, _ENDINGS[conjugation][tense].split()[person], conjugation)


@functools.cache
def imperative(infinitive: str) -> str:
    """What one says to one person: `abra`, `pague`, `traga`."""
    if infinitive in _SUBJUNCTIVES:
        return _SUBJUNCTIVES[infinitive]
    stem = portuguese_verb(infinitive, "present", 0)[:-1]
    return _spelled(stem, "e", "ar") if infinitive.endswith("ar") else stem + "a"


@functools.cache
def gerund(infinitive: str) -> str:
    """`comprando`, `lendo`, `abrindo`."""
    return infinitive[:-1] + "ndo"


@functools.cache
def portuguese_participle(infinitive: str) -> str:
    """The masculine singular: `comprado`, `lido`, `aberto`."""
    if infinitive in _PARTICIPLES:
        return _PARTICIPLES[infinitive]
    stem = infinitive[:-2]
    if infinitive.endswith("ar"):
        return stem + "ado"
    return stem + ("ído" if stem[-1] in "au" and stem[-2:] not in ("qu", "gu") else "ido")


_PORTUGUESE_PLURALS = {"pão": "pães", "irmão": "irmãos", "alemão": "alemães", "cão": "cães", "mão": "mãos"}


@functools.cache
def portuguese_plural(word: str) -> str:
    """The plural of a noun or adjective: `leões`, `hotéis`, `homens`, `flores`, `lápis`."""
    if word in _PORTUGUESE_PLURALS:
        return _PORTUGUESE_PLURALS[word]
    if word.endswith("ão"):
        return word[:-2] + "ões"
    if word.endswith("m"):
        return word[:-1] + "ns"
    if word.endswith("il"):
        return word[:-2] + ("eis" if set(word) & set("áéíóú") else "is")
    if word.endswith("el"):
        return word[:-2] + ("eis" if set(word) & set("áéíóú") else "éis")
    if word.endswith("l"):
        return word[:-1] + "is"
    if word.endswith(("r", "z")):
        return word + "es"
    return word if word.endswith("s") else word + "s"


@functools.cache
def agreeing(adjective: str, gender: str, plural: bool) -> str:
    """An adjective, participle or numeral root in the gender and number of its noun."""
    feminine = gender == "f" and adjective.endswith("o")
    word = adjective[:-1] + "a" if feminine else adjective
    return portuguese_plural(word) if plural else word


_CONTRACTIONS = {
    "de": {"o": "do", "a": "da", "os": "dos", "as": "das"},
    "em": {"o": "no", "a": "na", "os": "nos", "as": "nas"},
    "por": {"o": "pelo", "a": "pela", "os": "pelos", "as": "pelas"},
    "a": {"o": "ao", "a": "à", "os": "aos", "as": "às"},
}
_FUSED = ("este", "esta", "estes", "estas", "ele", "ela", "eles", "elas")
_FUSED_FAR = ("aquele", "aquela", "aqueles", "aquelas")


def contracted(preposition: str, phrase: str) -> str:
    """A preposition before a phrase: `de` + `os livros` -> `dos livros`, `em` + `esta casa` -> `nesta casa`."""
    if not preposition:
        return phrase
    first, space, rest = phrase.partition(" ")
    if first in _CONTRACTIONS.get(preposition, {}):
        first = _CONTRACTIONS[preposition][first]
    elif preposition in ("de", "em") and first in _FUSED + _FUSED_FAR:
        first = {"de": "d", "em": "n"}[preposition] + first
    elif preposition == "a" and first in _FUSED_FAR:
        first = "à" + first[1:]
    else:
        first = f"{preposition} {first}"
    return first + space + rest


_UNITS = (
    "zero", "um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito", "nove", "dez", "onze", "doze",
    "treze", "catorze", "quinze", "dezesseis", "dezessete", "dezoito", "dezenove",
)  # fmt: skip
_TENS = (
    "vinte", "trinta", "quarenta", "cinquenta", "sessenta", "setenta", "oitenta", "noventa",
)  # fmt: skip


def portuguese_number(number: int, gender: str = "m") -> str:
    """The cardinal below a hundred, in the gender of what is counted: `vinte e duas`."""
    if number >= 20:
        tens = _TENS[number // 10 - 2]
        return f"{tens} e {portuguese_number(number % 10, gender)}" if number % 10 else tens
    if gender == "f" and number in (1, 2):
        return ("uma", "duas")[number - 1]
    return _UNITS[number]


# --- English ---------------------------------------------------------------------------------------------------------

_ENGLISH_PLURALS = {"man": "men", "woman": "women", "child": "children", "sheep": "sheep", "mouse": "mice",
    "knife": "knives", "wolf": "wolves", "wife": "wives", "photo": "photos", "piano": "pianos",
    "radio": "radios", "zoo": "zoos"}  # fmt: skip
_ENGLISH_VERBS = """
    eat ate eaten, drink drank drunk, buy bought bought, sell sold sold, find found found, lose lost lost,
    forget forgot forgotten, bring brought brought, choose chose chosen, break broke broken, drive drove driven,
    read read read, write wrote written, sing sang sung, teach taught taught, see saw seen, feed fed fed, draw
    drew drawn, build built built, cut cut cut, send sent sent, hide hid hidden, take took taken, sleep slept
    slept, swim swam swum, run ran run, have had had, go went gone, come came come, give gave given, make made
    made, say said said, know knew known, begin began begun, leave left left, get got gotten, do did done, lend
    lent lent, wake woke woken, speak spoke spoken, show showed shown, think thought thought
"""
_IRREGULAR_PAST = {forms.split()[0]: forms.split()[1:] for forms in " ".join(_ENGLISH_VERBS.split()).split(", ")}
_DOUBLED = ("cut", "forget", "swim", "run", "hug", "stop", "begin", "get")


@functools.cache
def _sibilant(word: str) -> str:
    """The ending `-s` in its three spellings."""
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def english_plural(noun: str) -> str:
    """The plural of a noun: `stories`, `boxes`, `children`."""
    head, space, last = noun.rpartition(" ")
    return head + space + _ENGLISH_PLURALS.get(last, _sibilant(last))


def _on_first_word(verb: str, change: dict[str, str] | str) -> str:
    first, space, rest = verb.partition(" ")
    form = change if isinstance(change, str) else change[first]
    return form + space + rest


@functools.cache
def third_person(verb: str) -> str:
    """`goes`, `watches`, `has lunch`."""
    first = verb.split()[0]
    return _on_first_word(verb, {"have": "has"}.get(first) or _sibilant(first))


@functools.cache
def english_past(verb: str, participle: bool = False) -> str:
    """Simple past or past participle: `ate` or `eaten`, `hugged`, `studied`, `listened to`."""
    first = verb.split()[0]
    if first in _IRREGULAR_PAST:
        return _on_first_word(verb, _IRREGULAR_PAST[first][participle])
    stem = first + first[-1] if first in _DOUBLED else first
    if stem.endswith("y") and stem[-2] not in VOWELS:
        stem = stem[:-1] + "i"
    return _on_first_word(verb, stem + ("d" if stem.endswith("e") else "ed"))


@functools.cache
def english_gerund(verb: str) -> str:
    """`running`, `writing`, `having lunch`."""
    first = verb.split()[0]
    stem = first + first[-1] if first in _DOUBLED else first
    if stem.endswith("e") and not stem.endswith(("ee", "oe")):
        stem = stem[:-1]
    return _on_first_word(verb, stem + "ing")


def with_article(phrase: str) -> str:
    """`a` or `an` before the phrase, by the sound that follows."""
    consonant = phrase[0] not in VOWELS or phrase.startswith(("uni", "use", "Eu"))
    consonant = consonant and not phrase.startswith(("honest", "hour"))
    return f"{'a' if consonant else 'an'} {phrase}"


_SHORT = (
    "narrow", "quiet", "polite",
)  # fmt: skip


@functools.cache
def comparative(adjective: str) -> str:
    """`bigger`, `heavier`, `more expensive`, without `than`."""
    vowels = sum(a in VOWELS and b not in VOWELS for a, b in zip(adjective, adjective[1:] + "-", strict=True))
    short = (vowels - adjective.endswith("e") <= 1 and len(adjective) <= 6) or adjective.endswith("y")
    if not short and adjective not in _SHORT:
        return f"more {adjective}"
    if adjective.endswith("y") and adjective[-2] not in VOWELS:
        return adjective[:-1] + "ier"
    if adjective in ("big", "hot", "sad", "red", "wet"):
        return adjective + adjective[-1] + "er"
    return adjective + ("r" if adjective.endswith("e") else "er")


def superlative(adjective: str) -> str:
    """`biggest`, `most expensive`, without `the`."""
    more = comparative(adjective)
    return "most" + more[4:] if more.startswith("more ") else more[:-1] + "st"


_ENGLISH_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_ENGLISH_TENS = (
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
)  # fmt: skip


def english_number(number: int) -> str:
    """The cardinal below a hundred: `twenty-two`."""
    if number >= 20:
        tens = _ENGLISH_TENS[number // 10 - 2]
        return f"{tens}-{english_number(number % 10)}" if number % 10 else tens
    return _ENGLISH_UNITS[number]


_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}  # fmt: skip


def english_ordinal(number: int) -> str:
    """`first`, `twelfth`, `twenty-third`."""
    head, dash, last = english_number(number).rpartition("-")
    return head + dash + _ORDINALS.get(last, last + "th")

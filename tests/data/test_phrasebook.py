"""The built-in phrasebook: its grammar, its split, and that it is the same everywhere."""

import collections
import functools
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from keras_transformer.data import phrasebook as module
from keras_transformer.data.grammar import clauses, inflection, phrases
from keras_transformer.data.grammar.clauses import Subject, Verb, clause, core, noun_phrase
from keras_transformer.data.grammar.frames import FRAMES
from keras_transformer.data.grammar.lexicon import ADJECTIVES, NOUNS, TRANSITIVES
from keras_transformer.data.phrasebook import SPLITS, count_sentences, phrasebook, split_of

HERE = pathlib.Path(module.__file__).parent
PACKAGES = [("keras_transformer", str(HERE.parent)), ("keras_transformer.data", str(HERE))]
WORD = re.compile(r"[\w'-]+")
I_SAID, SHE, THEY = Subject("eu", "I", 0), Subject("ela", "she", 1, "f"), Subject("eles", "they", 3)


@functools.cache
def corpus(split, size):
    return phrasebook(split, size)


def words(sentences):
    return {word for sentence in sentences for word in WORD.findall(sentence.lower())}


# --- The whole -------------------------------------------------------------------------------------------------------


def test_a_portuguese_sentence_has_one_english_one():
    rng, english = random.Random(11), {}
    for frame in FRAMES:
        for _ in range(3800):
            portuguese, translation = frame.render(*(slot.draw(rng)[0] for slot in frame.slots))
            assert english.setdefault(portuguese, translation) == translation
    assert len(english) > 200_000


def test_there_are_more_than_a_million_sentences():
    counts = count_sentences()
    large = [frame for frame in FRAMES if counts[frame.name] > 10_000_000]
    rng, made = random.Random(5), set()
    for frame in large:
        made |= {frame.render(*(slot.draw(rng)[0] for slot in frame.slots))[0] for _ in range(500)}
    assert sum(counts[frame.name] for frame in large) > 1_000_000
    assert len(made) > 0.99 * 500 * len(large)  # so the product counts sentences, not repetitions


def test_sentences_look_like_sentences():
    lengths = []
    for portuguese, english in corpus("train", 20_000):
        lengths.append(len(portuguese.split()))
        for text in (portuguese, english):
            assert text[0].isupper()
            assert text[-1] in ".?"
            assert text == " ".join(text.split())
        assert portuguese[-1] == english[-1]
    assert min(lengths) >= 2
    assert max(lengths) <= 16
    assert 6 < sum(lengths) / len(lengths) < 8.5


def test_every_lemma_is_frequent_in_training():
    seen = [word for portuguese, _ in corpus("train", 40_000) for word in WORD.findall(portuguese.lower())]
    counts = collections.Counter(seen)
    for noun in NOUNS.values():
        assert sum(counts[word] for word in {noun.pt, inflection.portuguese_plural(noun.pt)}) >= 20, noun
    for adjective in ADJECTIVES.values():
        forms = {inflection.agreeing(adjective.pt, gender, plural) for gender in "mf" for plural in (False, True)}
        assert sum(counts[word] for word in forms) >= 20, adjective
    for verb in {event.verb.pt for event in TRANSITIVES}:
        forms = {inflection.portuguese_verb(verb, t, p) for t in ("present", "preterite", "future") for p in range(4)}
        assert sum(counts[word] for word in {verb, *forms}) >= 20, verb


# --- The split -------------------------------------------------------------------------------------------------------


def test_splits_share_no_sentence():
    portuguese = {split: {pair[0] for pair in corpus(split, 5000)} for split in SPLITS}
    assert not portuguese["train"] & portuguese["test"]
    assert not portuguese["train"] & portuguese["validation"]
    assert not portuguese["validation"] & portuguese["test"]


def test_training_never_shows_a_held_out_adjective_beside_its_noun():
    held_out = set()
    for noun in NOUNS.values():
        for adjective in ADJECTIVES.values():
            if split_of("", ((adjective.pt, noun.pt),)) != "train":
                for plural in (False, True):
                    word = inflection.portuguese_plural(noun.pt) if plural else noun.pt
                    held_out.add((word, inflection.agreeing(adjective.pt, noun.gender, plural)))

    def beside(split, size):
        lines = [WORD.findall(portuguese.lower()) for portuguese, _ in corpus(split, size)]
        return {two for line in lines for two in itertools.pairwise(line)}

    assert not held_out & beside("train", 40_000)
    assert held_out & beside("test", 5000)


def test_training_never_shows_a_held_out_verb_with_its_object():
    infinitive = re.compile(r"\b([a-zç]+[aei]r) (?:o|a|os|as|um|uma|este|esta|meu|minha|ao|à) ([\w-]+)")
    verbs = {event.verb.pt for event in TRANSITIVES}

    def splits_seen(split, size):
        found = {match for sentence, _ in corpus(split, size) for match in infinitive.findall(sentence)}
        found = {(verb, noun) for verb, noun in found if verb in verbs and noun in NOUNS}
        assert len(found) > 30
        return {split_of("", (pair,)) for pair in found}

    assert splits_seen("train", 40_000) == {"train"}
    assert "test" in splits_seen("test", 5000)


def test_a_test_pair_outweighs_a_validation_pair():
    pairs = [(adjective, noun) for adjective in ADJECTIVES for noun in NOUNS]
    of = {split: next(pair for pair in pairs if split_of("", (pair,)) == split) for split in SPLITS}
    assert split_of("", (of["train"], of["validation"])) == "validation"
    assert split_of("", (of["validation"], of["test"], of["train"])) == "test"


def test_sentences_without_pairs_are_in_every_split():
    for split in SPLITS:
        assert any(portuguese.startswith("Hoje é") for portuguese, _ in corpus(split, 5000))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_every_word_is_known_from_training(split):
    for side in (0, 1):
        assert not words(p[side] for p in corpus(split, 5000)) - words(p[side] for p in corpus("train", 40_000))


def test_fewer_are_the_first_and_a_seed_changes_all():
    assert phrasebook("train", 300)[:100] == phrasebook("train", 100)
    assert phrasebook("train", 100, seed=1) != phrasebook("train", 100)
    assert len({p for p, _ in corpus("train", 40_000)}) == 40_000


def test_another_process_gives_the_same():
    code = f"""if True:
        import hashlib, json, sys, types
        for name, path in {PACKAGES!r}:  # without their __init__ files, which load TensorFlow
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [path]
        from keras_transformer.data.phrasebook import SPLITS, phrasebook
        text = json.dumps([phrasebook(split, 400, seed=3) for split in SPLITS])
        assert not {{"tensorflow", "keras", "numpy"}} & set(sys.modules)
        print(hashlib.sha256(text.encode()).hexdigest())"""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = json.dumps([phrasebook(split, 400, seed=3) for split in SPLITS])
    assert answer.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"split='dev'"):
        phrasebook("dev", 10)
    with pytest.raises(ValueError, match=r"size=0"):
        phrasebook("train", 0)
    with pytest.raises(ValueError, match=r"size=25001"):
        phrasebook("test", module.LARGEST["test"] + 1)


# --- Portuguese ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("infinitive", "tense", "forms"),
    [
        ("comprar", "preterite", "comprei comprou compramos compraram"),
        ("ir", "preterite", "fui foi fomos foram"),
        ("fazer", "preterite", "fiz fez fizemos fizeram"),
        ("fazer", "future", "farei fará faremos farão"),
        ("trazer", "future", "trarei trará traremos trarão"),
        ("abrir", "future", "abrirei abrirá abriremos abrirão"),
        ("pegar", "preterite", "peguei pegou pegamos pegaram"),
        ("tocar", "preterite", "toquei tocou tocamos tocaram"),
        ("abraçar", "preterite", "abracei abraçou abraçamos abraçaram"),
        ("ler", "present", "leio lê lemos leem"),
        ("ouvir", "present", "ouço ouve ouvimos ouvem"),
        ("esquecer", "present", "esqueço esquece esquecemos esquecem"),
        ("dirigir", "present", "dirijo dirige dirigimos dirigem"),
        ("pedir", "present", "peço pede pedimos pedem"),
        ("construir", "preterite", "construí construiu construímos construíram"),
        ("ser", "imperfect", "era era éramos eram"),
        ("estar", "imperfect", "estava estava estávamos estavam"),
        ("chegar", "future_subjunctive", "chegar chegar chegarmos chegarem"),
    ],
)
def test_conjugation(infinitive, tense, forms):
    assert [inflection.portuguese_verb(infinitive, tense, person) for person in range(4)] == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "ordered", "doing", "done"),
    [
        ("comprar", "compre", "comprando", "comprado"),
        ("pegar", "pegue", "pegando", "pegado"),
        ("abraçar", "abrace", "abraçando", "abraçado"),
        ("abrir", "abra", "abrindo", "aberto"),
        ("trazer", "traga", "trazendo", "trazido"),
        ("escrever", "escreva", "escrevendo", "escrito"),
        ("dirigir", "dirija", "dirigindo", "dirigido"),
        ("construir", "construa", "construindo", "construído"),
        ("ver", "veja", "vendo", "visto"),
    ],
)
def test_other_portuguese_forms(infinitive, ordered, doing, done):
    assert inflection.imperative(infinitive) == ordered
    assert inflection.gerund(infinitive) == doing
    assert inflection.portuguese_participle(infinitive) == done


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("pão", "pães"), ("irmão", "irmãos"), ("leão", "leões"), ("hotel", "hotéis"), ("hospital", "hospitais"),
        ("homem", "homens"), ("flor", "flores"), ("lápis", "lápis"), ("túnel", "túneis"), ("gentil", "gentis"),
        ("fácil", "fáceis"), ("azul", "azuis"), ("feliz", "felizes"), ("anel", "anéis"), ("mãe", "mães"),
    ],
)  # fmt: skip
def test_portuguese_plurals(singular, plural):
    assert inflection.portuguese_plural(singular) == plural


@pytest.mark.parametrize(
    ("determiner", "noun", "adjective", "expected"),
    [
        (phrases.THE_PL, "livro", "vermelho", ("os livros vermelhos", "the red books")),
        (phrases.A, "casa", "azul", ("uma casa azul", "a blue house")),
        (phrases.A, "maçã", None, ("uma maçã", "an apple")),
        (phrases.A, "universidade", None, ("uma universidade", "a university")),
        (phrases.A, "artista", "honesto", ("um artista honesto", "an honest artist")),
        (phrases.HER, "carro", "novo", ("o carro novo dela", "her new car")),
        (phrases.MY_PL, "faca", None, ("minhas facas", "my knives")),
        (phrases.NUMERALS[0], "criança", None, ("duas crianças", "two children")),
        (phrases.THOSE, "mulher", "gentil", ("aquelas mulheres gentis", "those kind women")),
    ],
)
def test_agreement(determiner, noun, adjective, expected):
    head = core(NOUNS[noun], ADJECTIVES[adjective] if adjective else None)
    assert noun_phrase(determiner, head)[:2] == expected


@pytest.mark.parametrize(
    ("preposition", "phrase", "expected"),
    [
        ("por", "as ruas", "pelas ruas"), ("em", "o parque", "no parque"), ("em", "as casas", "nas casas"),
        ("de", "os alunos", "dos alunos"), ("a", "a praia", "à praia"), ("a", "os meninos", "aos meninos"),
        ("a", "o filme", "ao filme"), ("a", "aquela mulher", "àquela mulher"), ("em", "esta mesa", "nesta mesa"),
        ("em", "aquele sofá", "naquele sofá"), ("de", "este livro", "deste livro"), ("por", "Ana", "por Ana"),
        ("em", "Lisboa", "em Lisboa"), ("por", "o professor", "pelo professor"), ("de", "um carro", "de um carro"),
    ],
)  # fmt: skip
def test_contractions(preposition, phrase, expected):
    assert inflection.contracted(preposition, phrase) == expected


def test_numbers():
    assert inflection.portuguese_number(22, "f") == "vinte e duas"
    assert inflection.portuguese_number(16) == "dezesseis"
    assert inflection.english_number(45) == "forty-five"
    assert [inflection.english_ordinal(n) for n in (1, 12, 20, 23)] == ["first", "twelfth", "twentieth", "twenty-third"]


@pytest.mark.parametrize(
    ("who", "verb", "tense", "expected"),
    [
        (clauses.I_DROPPED, "comprar", "past", "comprei"),
        (clauses.I_DROPPED, "trazer", "past", "eu trouxe"),
        (clauses.I_DROPPED, "comer", "present", "eu como"),
        (clauses.I_DROPPED, "ler", "was_doing", "eu estava lendo"),
        (clauses.WE_DROPPED, "ler", "was_doing", "estávamos lendo"),
        (clauses.WE_DROPPED, "comprar", "going", "nós vamos comprar"),
        (clauses.WE_DROPPED, "ir", "present", "nós vamos"),
        (clauses.WE_DROPPED, "comprar", "future", "compraremos"),
    ],
)
def test_a_subject_is_left_out_only_where_the_verb_tells_it(who, verb, tense, expected):
    assert clause(who, Verb(verb, "do"), tense, ("", "")).pt == expected


def test_bare_forms_with_two_tenses_are_not_said():
    plain = re.compile(r"^(?:Nós )?(?:não )?(\w+[aei]mos) (?:o|a|os|as|um|uma) [\w-]+\.$", re.IGNORECASE)
    bare = {match[1].lower() for p, _ in corpus("train", 40_000) if (match := plain.match(p))}
    assert not bare & {"compramos", "comemos", "abrimos", "lavamos", "vendemos", "escrevemos"}
    assert "compramos" in words(p for p, _ in corpus("train", 40_000))


# --- English ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "verb", "tense", "negative", "question", "expected"),
    [
        (SHE, Verb("comprar", "buy"), "present", "", False, "she buys it"),
        (SHE, Verb("comprar", "buy"), "present", "não", False, "she does not buy it"),
        (THEY, Verb("comprar", "buy"), "past", "não", False, "they did not buy it"),
        (SHE, Verb("comprar", "buy"), "past", "", True, "did she buy it"),
        (THEY, Verb("comprar", "buy"), "present", "", True, "do they buy it"),
        (SHE, Verb("estudar", "study"), "present", "", False, "she studies it"),
        (I_SAID, Verb("comer", "eat"), "progressive", "", False, "I am eating it"),
        (I_SAID, Verb("cortar", "cut"), "progressive", "não", False, "I am not cutting it"),
        (THEY, Verb("dirigir", "drive"), "perfect", "", False, "they have driven it"),
        (SHE, Verb("ver", "see"), "can", "não", False, "she cannot see it"),
        (SHE, Verb("ver", "see"), "want", "não", False, "she does not want to see it"),
        (SHE, Verb("ver", "see"), "need", "", False, "she needs to see it"),
        (THEY, Verb("ver", "see"), "going", "", True, "are they going to see it"),
        (SHE, Verb("ver", "see"), "future", "", True, "will she see it"),
    ],
)
def test_english_clauses(who, verb, tense, negative, question, expected):
    assert clause(who, verb, tense, ("", "it"), negative, question).en == expected


def test_english_forms():
    assert [inflection.english_plural(w) for w in ("child", "wolf", "sheep", "city", "box", "boy", "soap opera")] == [
        "children", "wolves", "sheep", "cities", "boxes", "boys", "soap operas"]  # fmt: skip
    assert [inflection.english_past(v) for v in ("hug", "study", "play", "look for", "come in", "bring")] == [
        "hugged", "studied", "played", "looked for", "came in", "brought"]  # fmt: skip
    assert [inflection.comparative(a) for a in ("big", "heavy", "expensive", "new", "wide", "famous")] == [
        "bigger", "heavier", "more expensive", "newer", "wider", "more famous"]  # fmt: skip
    assert [inflection.superlative(a) for a in ("expensive", "easy")] == ["most expensive", "easiest"]

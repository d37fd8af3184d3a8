"""BLEU and chrF in the logs: sacrebleu's figures, of the weights of the moment, before others look at them."""

import json
import logging
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
from ports import free_ports
from replicas import strategy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import keras_transformer as kt

PAIRS = [
    ("um gato", "The cat sat on the mat, didn't it?"),
    ("um cão", "Two dogs — both brown — ran away; nobody knew why."),
    ("São João", "St. John's Eve: fires, music & dancing until 5 a.m."),
    ("日本", "Japan's railways carry 7,000,000,000 people a year."),
    ("sim", "Yes , this line is tokenized already ."),
]
# What a middling translator makes of them: some words right, one sentence empty.
GUESSES = [
    "the cat sat on a mat, didn't it?",
    "Two dogs — both black — ran off; nobody knew why",
    "",
    "Railways of Japan carry 7,000,000,000 persons a year.",
    "yes , this line is tokenized already . Or not ?",
]


class Guesser:
    """A translator whose translations come from a list; each call may take another list."""

    def __init__(self, *rounds):
        self.rounds = rounds
        self.calls = []
        self.num_beams = 4
        self.beams = []

    def __call__(self, texts):
        self.beams.append(self.num_beams)
        guesses = self.rounds[min(len(self.calls), len(self.rounds) - 1)]
        self.calls.append(list(texts))
        return list(guesses)


def worse(number):
    """The references with fewer and fewer of their words."""
    return [reference[: max(0, len(reference) - 8 * number)] for _, reference in PAIRS]


@pytest.fixture
def line():
    """A small model of four batches an epoch, which learns something or other."""

    def make(**options):
        class Line(kt.DistributedModel):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)

            def call(self, x):
                return self.dense(x)

        model = Line()
        model.compile("sgd", loss="mse", jit_compile=False, **options)
        return model

    return make


def fit(model, *callbacks, epochs=1, **arguments):
    return model.fit(
        np.ones((4, 1)), np.ones((4, 1)), batch_size=1, epochs=epochs, verbose=0, callbacks=list(callbacks), **arguments
    ).history


def of_the_command_line(directory, guesses, *options):
    """What `python -m sacrebleu` says of the guesses: its BLEU and chrF, and their signatures."""
    for name, lines in (("reference", [reference for _, reference in PAIRS]), ("guess", guesses)):
        (directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "guess", "-m", "bleu", "chrf", "-w", "9", *options]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    output = subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=True).stdout
    return json.loads(output)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, []),
        ({"tokenize": "none", "lowercase": True}, ["--tokenize", "none", "--lowercase", "--chrf-lowercase"]),
        ({"tokenize": "intl"}, ["--tokenize", "intl"]),
    ],
)
def test_scores_are_the_command_lines(line, tmp_path, settings, options):
    callback = kt.BleuCallback(Guesser(GUESSES), PAIRS, **settings)
    history = fit(line(), callback)
    bleu, chrf = of_the_command_line(tmp_path, GUESSES, *options)
    assert history["val_bleu"] == pytest.approx([bleu["score"]], abs=1e-8)
    assert history["val_chrf"] == pytest.approx([chrf["score"]], abs=1e-8)
    assert callback.signature == f"BLEU {bleu['signature']}; chrF2 {chrf['signature']}"
    assert 20 < bleu["score"] < 80


def test_the_line_in_the_log_carries_the_signature(line, caplog):
    with caplog.at_level(logging.INFO, "keras_transformer"):
        callback = kt.BleuCallback(Guesser(GUESSES), PAIRS)
        history = fit(line(), callback)
    (message,) = [record.getMessage() for record in caplog.records if "val_bleu" in record.getMessage()]
    assert message == (
        f"update 4: val_bleu {history['val_bleu'][0]:.2f}, val_chrf {history['val_chrf'][0]:.2f} on 5 sentences "
        f"({callback.signature})"
    )
    assert "tok:13a" in callback.signature


def test_early_stopping_and_model_checkpoint_see_the_scores(line, tmp_path):
    """They fall from the third epoch on: the second is kept, and the fourth is the last."""
    rounds = [worse(number) for number in (2, 1, 3, 4, 5, 6)]
    bleu = kt.BleuCallback(Guesser(*rounds), PAIRS)
    stop = keras.callbacks.EarlyStopping("val_bleu", patience=2, mode="max")
    path = str(tmp_path / "{epoch}-{val_chrf:.3f}.keras")
    keep = keras.callbacks.ModelCheckpoint(path, "val_chrf", save_best_only=True, mode="max")
    keep.model_was_saved = []
    keep._save_model = lambda epoch, batch, logs: keep.model_was_saved.append((epoch, logs["val_chrf"]))
    history = fit(line(), bleu, stop, keep, epochs=6)
    assert len(history["val_bleu"]) == 4
    assert stop.best == history["val_bleu"][1] == max(history["val_bleu"])
    assert keep.model_was_saved == list(enumerate(history["val_chrf"]))


def test_checkpointing_keeps_the_best_by_bleu_and_the_history_over_a_resume(line, tmp_path):
    rounds = [worse(number) for number in (2, 1, 3)]

    def run(epochs, *rounds):
        checkpointing = kt.Checkpointing(tmp_path, monitor="val_bleu", keep=1, handle_sigterm=False)
        bleu = kt.BleuCallback(Guesser(*rounds), PAIRS)
        model = line()
        model(np.ones((1, 1)))
        return fit(model, bleu, checkpointing, epochs=epochs), bleu, checkpointing

    run(2, *rounds[:2])
    history, bleu, checkpointing = run(3, *rounds[2:])
    assert checkpointing.best().name == "update-00000008.ckpt"
    assert [(scores.update, scores.bleu) for scores in bleu.history] == list(
        zip((4, 8, 12), history["val_bleu"], strict=True)
    )


@pytest.mark.parametrize("kind", [keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau])
@pytest.mark.parametrize("monitor", ["val_bleu", "val_chrf"])
def test_a_callback_that_would_look_too_early_is_named(line, kind, monitor):
    bleu = kt.BleuCallback(Guesser(GUESSES), PAIRS)
    with pytest.raises(ValueError, match=f"BleuCallback must come before {kind.__name__} .*monitor='{monitor}'"):
        fit(line(), kind(monitor, mode="max"), bleu)
    assert bleu.translator.calls == []


def test_callbacks_that_monitor_something_else_may_come_before(line):
    bleu = kt.BleuCallback(Guesser(GUESSES), PAIRS, name_prefix="test_")
    history = fit(line(), keras.callbacks.EarlyStopping("loss"), bleu)
    assert set(history) == {"loss", "test_bleu", "test_chrf"}


def test_it_works_with_any_keras_model():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    history = fit(model, kt.BleuCallback(Guesser(GUESSES), PAIRS))
    assert set(history) == {"loss", "val_bleu", "val_chrf"}


def test_epochs_between_have_no_scores(line):
    seen = []
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append("val_bleu" in logs))
    bleu = kt.BleuCallback(Guesser(GUESSES), PAIRS, every_epochs=2)
    fit(line(), bleu, look, epochs=5)
    assert seen == [False, True, False, True, False]
    assert [scores.update for scores in bleu.history] == [8, 16]


def logged(directory):
    accumulator = EventAccumulator(str(directory)).Reload()
    return {
        tag: [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in accumulator.Tensors(tag)]
        for tag in accumulator.Tags()["tensors"]
    }


@pytest.mark.parametrize(("at_once", "expected"), [(1, [3, 6]), (2, [4, 6])])
def test_every_so_many_updates_it_translates_too(line, tmp_path, at_once, expected):
    """With two updates at once, three are passed at the fourth."""
    guesser = Guesser(worse(1), worse(2), worse(3))
    bleu = kt.BleuCallback(guesser, PAIRS, every_epochs=None, every_steps=3, log_dir=tmp_path)
    history = fit(line(steps_per_execution=at_once), bleu, epochs=2)
    assert set(history) == {"loss"}
    assert [scores.update for scores in bleu.history] == expected
    assert logged(tmp_path) == {
        "update/val_bleu": [(scores.update, pytest.approx(scores.bleu)) for scores in bleu.history],
        "update/val_chrf": [(scores.update, pytest.approx(scores.chrf)) for scores in bleu.history],
    }
    assert bleu.history[0].bleu > bleu.history[1].bleu


def test_an_epochs_last_update_is_translated_after_once(line):
    guesser = Guesser(worse(1), worse(2), worse(3))
    bleu = kt.BleuCallback(guesser, PAIRS, every_steps=2)
    history = fit(line(), bleu)
    assert [scores.update for scores in bleu.history] == [2, 4]
    assert history["val_bleu"] == [bleu.history[1].bleu]


def test_steps_in_the_files_grow_over_a_second_run(line, tmp_path):
    for _ in range(2):
        fit(line(), kt.BleuCallback(Guesser(GUESSES), PAIRS, every_steps=2, log_dir=tmp_path))
    assert [step for step, _ in logged(tmp_path)["update/val_bleu"]] == [2, 4]


def test_beams_are_set_for_its_own_translations_alone(line):
    guesser = Guesser(GUESSES)
    fit(line(), kt.BleuCallback(guesser, PAIRS, num_beams=1), kt.BleuCallback(guesser, PAIRS, name_prefix="other_"))
    assert guesser.beams == [1, 4]
    assert guesser.num_beams == 4


def test_max_sentences_takes_the_first(line):
    guesser = Guesser(GUESSES[:2])
    fit(line(), kt.BleuCallback(guesser, kt.ParallelCorpus.from_pairs(PAIRS), max_sentences=2))
    assert guesser.calls == [[source for source, _ in PAIRS[:2]]]


# With a model that translates


@pytest.fixture(scope="module")
def tokenizer():
    return kt.Tokenizer.train([side for pair in PAIRS for side in pair], vocabulary_size=330)


@pytest.fixture
def make_model(tokenizer):
    def make():
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
        model = kt.Transformer(tokenizer.vocabulary_size, **sizes, dropout=0.1)
        model.build()
        model.compile(keras.optimizers.Adam(0.05), loss=kt.SmoothedCrossentropy(), jit_compile=False)
        return model

    return make


@pytest.fixture(scope="module")
def dataset(tokenizer):
    return kt.make_dataset(kt.ParallelCorpus.from_pairs(PAIRS * 4), tokenizer, batch_tokens=1024, max_length=64)


class Listening:
    """A translator and what it said."""

    def __init__(self, translator):
        self.translator = translator
        self.model = translator.model
        self.said = []

    def __call__(self, texts):
        self.said.append(self.translator(texts))
        return self.said[-1]


def test_each_epochs_own_weights_translate(make_model, tokenizer, dataset):
    """What is said at each epoch's end is what a new translator of the weights of then says, and it changes."""

    class Afresh(keras.callbacks.Callback):
        said = []

        def on_epoch_end(self, epoch, logs=None):
            copy = make_model()
            copy.set_weights(self.model.get_weights())
            self.said.append(kt.Translator(copy, tokenizer, num_beams=1)([source for source, _ in PAIRS]))

    model = make_model()
    translator = Listening(kt.Translator(model, tokenizer, num_beams=1))
    afresh = Afresh()
    model.fit(dataset, epochs=3, verbose=0, callbacks=[kt.BleuCallback(translator, PAIRS), afresh])
    assert translator.said == afresh.said
    assert len({tuple(said) for said in translator.said}) > 1


@pytest.mark.slow
def test_two_runs_give_the_same_scores(make_model, tokenizer, dataset):
    histories = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        model = make_model()
        dataset.set_epoch(0)
        bleu = kt.BleuCallback(kt.Translator(model, tokenizer), PAIRS, num_beams=2)
        histories.append(model.fit(dataset, epochs=2, verbose=0, callbacks=[bleu]).history)
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_translating_changes_nothing_in_training(make_model, tokenizer, dataset):
    losses = []
    for watched in (True, False):
        keras.utils.set_random_seed(3)
        model = make_model()
        translator = kt.Translator(model, tokenizer)
        callbacks = [kt.BleuCallback(translator, PAIRS, num_beams=1, every_steps=1)] if watched else []
        losses.append(model.fit(dataset, epochs=2, verbose=0, callbacks=callbacks).history["loss"])
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_two_replicas(make_model, tokenizer):
    dataset = kt.make_dataset(
        kt.ParallelCorpus.from_pairs(PAIRS * 4), tokenizer, batch_tokens=1024, max_length=64, rows_multiple_of=2
    )
    with strategy(2).scope():
        model = make_model()
    translator = Listening(kt.Translator(model, tokenizer, num_beams=1))
    history = model.fit(dataset, epochs=2, verbose=0, callbacks=[kt.BleuCallback(translator, PAIRS)]).history
    copy = make_model()
    copy.set_weights(model.get_weights())
    assert kt.Translator(copy, tokenizer, num_beams=1)([source for source, _ in PAIRS]) == translator.said[-1]
    assert len(history["val_bleu"]) == 2


def test_a_translator_of_another_model_is_refused(make_model, tokenizer, dataset):
    bleu = kt.BleuCallback(kt.Translator(make_model(), tokenizer), PAIRS)
    with pytest.raises(ValueError, match="`translator` must translate with the model that is trained"):
        make_model().fit(dataset, verbose=0, callbacks=[bleu])


WORKER = """
    import json, os, sys
    number, ports, log_dir = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": number}})
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    import keras, numpy as np
    import keras_transformer as kt

    class Line(kt.DistributedModel):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
        def call(self, x):
            return self.dense(x)

    with strategy.scope():
        model = Line()
        model(np.ones((1, 1)))
        model.compile("sgd", loss="mse", jit_compile=False)
    rounds = [["a b c d e"], ["a b c d f g"]]
    said = lambda texts: rounds[number]  # as if their processors rounded differently
    directory = os.path.join(log_dir, str(number))
    bleu = kt.BleuCallback(said, [("x", "a b c d e f")], every_steps=1, log_dir=directory)
    history = model.fit(
        np.ones((4, 1)), np.ones((4, 1)), batch_size=2, epochs=2, verbose=0,
        callbacks=[bleu, kt.TrainingCurves(directory, every=1)],
    ).history
    files = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    print("RESULT", json.dumps({"scores": [history["val_bleu"], history["val_chrf"]], "files": len(files)}))
"""


@pytest.mark.slow
def test_two_workers_have_the_chiefs_scores_and_the_chief_alone_writes(tmp_path):
    ports = ",".join(free_ports())
    environment = {
        **os.environ,
        "PYTHONPATH": os.path.dirname(os.path.dirname(kt.__file__)),
        "CUDA_VISIBLE_DEVICES": "",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), str(number), ports, str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    results = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors[-3000:]
            results.append(json.loads(output.split("RESULT ")[1]))
    finally:
        for process in processes:
            process.kill()
    chief, other = results
    assert other["scores"] == chief["scores"]
    import sacrebleu

    expected = sacrebleu.corpus_bleu(["a b c d e"], [["a b c d e f"]]).score
    assert chief["scores"][0] == [expected] * 2
    assert (chief["files"], other["files"]) == (2, 0)


# Wrong arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pairs": []}, ValueError, r"`pairs` must hold at least one sentence.*Received: none"),
        ({"pairs": ["ab", "cd"]}, TypeError, r"`pairs` must hold \(source, reference\) strings. Received: 'ab'"),
        ({"pairs": [("a", None)]}, TypeError, r"`pairs` must hold.*Received: \('a', None\)"),
        ({"pairs": [("a", "b", "c")]}, TypeError, r"`pairs` must hold"),
        ({"pairs": [3]}, TypeError, r"`pairs` must hold.*Received: 3"),
        ({"translator": "x"}, TypeError, r"`translator` must take a list of strings. Received: translator='x'"),
        ({"every_epochs": 0}, ValueError, r"`every_epochs`.*every_epochs=0"),
        ({"every_epochs": None}, ValueError, r"One of `every_epochs` and `every_steps`"),
        ({"every_steps": -1}, ValueError, r"`every_steps`.*every_steps=-1"),
        ({"max_sentences": 0}, ValueError, r"`max_sentences`.*max_sentences=0"),
        ({"num_beams": 0}, ValueError, r"`num_beams`.*num_beams=0"),
        ({"translator": len, "num_beams": 2}, ValueError, r"`num_beams` needs a translator that has it"),
        ({"tokenize": "13b"}, ValueError, r"`tokenize` must be one of.*tokenize='13b'"),
    ],
)
def test_a_wrong_argument_is_named(arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        kt.BleuCallback(**{"translator": Guesser(GUESSES), "pairs": PAIRS, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("guesses", [[], GUESSES[:3], [*GUESSES, "more"]])
def test_a_wrong_number_of_translations_is_told(line, guesses):
    with pytest.raises(ValueError, match=f"for each of 5 sentences. Received: {len(guesses)} translations"):
        fit(line(), kt.BleuCallback(Guesser(guesses), PAIRS))


def test_a_translation_that_is_no_string_is_told(line):
    with pytest.raises(TypeError, match=r"`translator` must give strings\. Received: None"):
        fit(line(), kt.BleuCallback(Guesser([None] * 5), PAIRS))


def test_translations_that_are_all_empty_score_nothing(line):
    history = fit(line(), kt.BleuCallback(Guesser([""] * 5), PAIRS))
    assert history["val_bleu"] == history["val_chrf"] == [0.0]

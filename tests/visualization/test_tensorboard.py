"""Attention in TensorBoard, read back from the event files: what is shown, of what, when, and at what cost."""

import html
import json
import logging
import math
import os
import pathlib
import re
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from ports import free_ports
from replicas import strategy
from tensorboard.plugin_util import markdown_to_safe_html

import keras_transformer as kt
from keras_transformer.training.event_files import EventWriter
from keras_transformer.visualization.attention_entropy import attention_entropy
from keras_transformer.visualization.attention_image import attention_image
from keras_transformer.visualization.attention_maps import AttentionMaps
from keras_transformer.visualization.time_share import TimeShare

PAIRS = [("o gato dorme", "the cat sleeps"), ("um cão corre depressa hoje", "a dog runs fast"), ("não", "no")]
SENTENCES = [source for source, _ in PAIRS]
KINDS = ("encoder", "decoder", "cross")
LAYERS, HEADS = {"encoder": 2, "decoder": 1, "cross": 1}, 2


@pytest.fixture(scope="module")
def tokenizer():
    return kt.Tokenizer.train([side for pair in PAIRS for side in pair] * 10, vocabulary_size=289)


@pytest.fixture(scope="module")
def dataset(tokenizer):
    """Four batches of one shape."""
    longest = int(max(tokenizer.tokenize(PAIRS[0], add_end=True).row_lengths()))
    corpus = kt.ParallelCorpus.from_pairs([PAIRS[0]] * 16)
    dataset = kt.make_dataset(corpus, tokenizer, batch_tokens=4 * longest, max_length=longest)
    assert len(dataset) == 4
    return dataset


@pytest.fixture(scope="module")
def make_model(tokenizer):
    """A tiny model; its two stacks have not the same number of layers."""

    def make(**options):
        keras.utils.set_random_seed(1)
        sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 16, "num_heads": HEADS, "d_ff": 24}
        model = kt.Transformer(tokenizer.vocabulary_size, **{**sizes, "dropout": 0.1, **options})
        model.build()
        metrics = [kt.TokenAccuracy()]
        model.compile("adam", loss=kt.SmoothedCrossentropy(0.1), weighted_metrics=metrics, jit_compile=False)
        return model

    return make


@pytest.fixture
def watch(watch_in, tmp_path):
    """`watch(model, sentences, **options)`: the callback, of a translator, that writes whenever it is due."""

    def watch(model, sentences=SENTENCES, directory=tmp_path / "logs", **options):
        return watch_in(directory, model, sentences, **options)

    return watch


@pytest.fixture(scope="module")
def watch_in(tokenizer):
    def watch(directory, model, sentences, **options):
        translator = kt.Translator(model, tokenizer, num_beams=1, max_target_length=8)
        return kt.AttentionTensorBoard(translator, sentences, directory, **{"every": 4, "max_share": None, **options})

    return watch


class Point:
    """One value of a tag: its step, TensorBoard's plugin, and its content."""

    def __init__(self, step, value):
        self.step, self.plugin = step, value.metadata.plugin_data.plugin_name
        self.content = tf.make_ndarray(value.tensor)

    @property
    def number(self):
        assert self.plugin == "scalars"
        return float(self.content)

    @property
    def text(self):
        assert self.plugin == "text"
        return self.content.reshape(())[()].decode()

    @property
    def pixels(self):
        assert self.plugin == "images"
        width, height, picture = self.content
        pixels = tf.io.decode_png(picture).numpy()
        assert pixels.shape[:2] == (int(height), int(width))
        return pixels


def read(directory):
    """All points of every tag, in the order written, file after file."""
    points = {}
    for path in sorted(pathlib.Path(directory).glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                points.setdefault(value.tag, []).append(Point(event.step, value))
    return points


def steps(points):
    return [point.step for point in points]


def fit(model, dataset, *callbacks, epochs=2, **options):
    model.fit(dataset, epochs=epochs, verbose=0, callbacks=list(callbacks), **options)


def shown(markdown):
    """The rows of a text as TensorBoard's page shows them."""
    page = markdown_to_safe_html(markdown)
    cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", page, re.DOTALL)
    assert "<" not in "".join(cells), page
    texts = [html.unescape(cell) for cell in cells]
    return dict(zip(texts[::2], texts[1::2], strict=True))


@pytest.fixture(scope="module")
def trained(make_model, watch_in, dataset, tmp_path_factory):
    """Eight updates with pairs of three lengths: what is in the event files, and the translator at the end."""
    directory, model = tmp_path_factory.mktemp("trained"), make_model()
    callback = watch_in(directory, model, PAIRS, layers=None, every=3)
    fit(model, dataset, callback, epochs=2)
    return read(directory), translator_of(callback)


def translator_of(callback):
    return callback._watched.translator


def test_every_tag_has_a_point_at_each_multiple_of_updates_and_at_the_end(trained):
    points, _ = trained
    per_layer = [f"{kind}/layer_{layer}" for kind in KINDS for layer in range(1, LAYERS[kind] + 1)]
    expected = {
        "scalars": {f"attention_entropy/{name}/head_{head}" for name in per_layer for head in (1, 2)},
        "histograms": {f"attention_entropy/{name}" for name in per_layer},
        "images": {f"attention/{name}/sentence_{number}" for name in per_layer for number in (1, 2, 3)},
        "text": {f"translation/sentence_{number}" for number in (1, 2, 3)},
    }
    for plugin, tags in expected.items():
        assert {tag for tag, values in points.items() if values[0].plugin == plugin} == tags
    assert set(points) == set().union(*expected.values())
    for tag, values in points.items():
        assert steps(values) == [3, 6, 8], tag


def test_the_pictures_are_those_of_the_forced_target_without_padding(trained):
    """Sentences of three lengths go through the model together; each picture is that of its sentence alone."""
    points, translator = trained
    for number, pair in enumerate(PAIRS, 1):
        alone = translator.attention(*pair)
        for kind in KINDS:
            for layer in range(LAYERS[kind]):
                *_, point = points[f"attention/{kind}/layer_{layer + 1}/sentence_{number}"]
                assert_same_picture(point.pixels, attention_image(alone, kind, layer, [0, 1]))


def assert_same_picture(ours, theirs):
    """But for rounding: a level or two of 256."""
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 4


def test_the_text_is_the_translators_greedy_one_with_the_weights_of_the_moment(make_model, watch, dataset, tmp_path):
    model = make_model()
    callback = watch(model, [PAIRS[0], SENTENCES[1], PAIRS[2], ""], every=1000)
    translator = translator_of(callback)
    for epochs in (0, 30):
        fit(model, dataset, callback, epochs=epochs)
        points = read(tmp_path / "logs")
        texts = [shown(points[f"translation/sentence_{number}"][-1].text) for number in (1, 2, 3, 4)]
        translations = translator([PAIRS[0][0], SENTENCES[1], PAIRS[2][0], ""])
        assert [text["translation"].split() for text in texts] == [text.split() for text in translations]
    assert [text["source"] for text in texts] == [PAIRS[0][0], SENTENCES[1], PAIRS[2][0], ""]
    assert [text.get("reference") for text in texts] == [PAIRS[0][1], None, PAIRS[2][1], None]


HOSTILE = [
    "<script>alert('1')</script> <img src=x onerror=alert(1)>",
    "**b** _i_ `code` | cell | [link](http://example.com) ![i](x.png)",
    "# title &amp; &#60; \\ 1. - + > ~~ http://example.com a@b.example",
    "mãe 日本 مرحبا 🙂 ▁",
    "line\nbreak\ttab",
]


def test_html_and_markdown_are_shown_as_they_were_written(make_model, watch, dataset, tmp_path):
    model = make_model()
    fit(model, dataset, watch(model, [(text, text) for text in HOSTILE]), epochs=0)
    points = read(tmp_path / "logs")
    for number, text in enumerate(HOSTILE, 1):
        row = shown(points[f"translation/sentence_{number}"][0].text)
        assert row["source"].split() == text.split()
        assert row["reference"].split() == text.split()


def test_entropy_of_even_and_of_one_hot_weights():
    assert attention_entropy(np.full((2, 3, 5), 1 / 5)) == pytest.approx(np.full((2, 3), math.log(5)))
    one_hot = attention_entropy(np.eye(4, dtype="float32"))
    assert one_hot.tolist() == [0.0] * 4
    assert not np.signbit(one_hot).any()
    assert attention_entropy(np.array([0.5, 0.25, 0.25, 0.0])) == pytest.approx(1.5 * math.log(2))
    assert attention_entropy(np.array([[1.0]])).tolist() == [0.0]
    assert attention_entropy(np.zeros((1, 3))).tolist() == [0.0]  # nothing to attend to


def test_the_curves_are_the_mean_over_all_queries_and_the_histograms_hold_each(trained):
    points, translator = trained
    attentions = [translator.attention(*pair) for pair in PAIRS]
    for kind in KINDS:
        for layer in range(LAYERS[kind]):
            values = []
            for head in range(HEADS):
                rows = [row for each in attentions for row in getattr(each, kind)[layer, head]]
                by_hand = [-sum(p * math.log(p) for p in row.tolist() if p > 0) for row in rows]
                *_, point = points[f"attention_entropy/{kind}/layer_{layer + 1}/head_{head + 1}"]
                assert point.number == pytest.approx(np.mean(by_hand), abs=1e-4)
                values += by_hand
            *_, histogram = points[f"attention_entropy/{kind}/layer_{layer + 1}"]
            left, right, count = histogram.content.T
            assert count.sum() == len(values)
            assert left[0] == pytest.approx(min(values), abs=1e-4)
            assert right[-1] == pytest.approx(max(values), abs=1e-4)


def test_a_model_and_ids_where_there_is_no_text(make_model, dataset, tmp_path):
    """Rows as a dataset has them, filled up with padding, and one with padding inside."""
    model = make_model()
    pairs = [([7, 8, 9, 3], np.array([2, 11, 12, 13, 0, 0])), ([20, 0, 3, 0, 0, 0], (2, 30))]
    fit(model, dataset, kt.AttentionTensorBoard(model, pairs, tmp_path / "logs"), epochs=0)
    points = read(tmp_path / "logs")
    assert not [tag for tag in points if tag.startswith("translation")]
    for number, (source, target) in enumerate(pairs, 1):
        source, target = np.asarray(source), np.asarray(target)
        inputs = {"encoder_token_ids": source[None], "decoder_token_ids": target[None]}
        _, scores = model(inputs, training=False, return_attention_scores=True)
        names = [str(token) for token in source if token], [str(token) for token in target if token]
        sides = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
        weights = {
            kind: np.concatenate([np.asarray(layer) for layer in scores[kind]])[:, :, queries > 0][..., keys > 0]
            for kind, (queries, keys) in sides.items()
        }
        alone = AttentionMaps(names[0], names[1], [*names[1][1:], "…"], **weights)
        for kind in KINDS:
            (point,) = points[f"attention/{kind}/layer_{LAYERS[kind]}/sentence_{number}"]
            assert_same_picture(point.pixels, attention_image(alone, kind, LAYERS[kind] - 1, [0, 1]))


@pytest.mark.slow
def test_several_updates_at_once(make_model, watch, dataset, tmp_path):
    """Executions of three batches and of the one that is left: updates 3, 4, 7, 8."""
    model = make_model()
    model.compile("sgd", loss=kt.SmoothedCrossentropy(), jit_compile=False, steps_per_execution=3)
    fit(model, dataset, watch(model, every=3))
    assert steps(read(tmp_path / "logs")["translation/sentence_1"]) == [3, 7, 8]


class Killed(keras.callbacks.Callback):
    def __init__(self, update):
        super().__init__()
        self.update = update

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.update:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_steps_grow_over_a_resume(make_model, watch, dataset, tmp_path):
    """Killed after update 7 it goes on from the checkpoint of update 6: what was written at 7 is not written again."""

    def run(name, *callbacks):
        model = make_model()
        callback = watch(model, SENTENCES[:1], tmp_path / name, every=1)
        fit(model, dataset, callback, *callbacks, epochs=3)
        return callback

    with pytest.raises(KeyboardInterrupt):
        run("parts", Killed(7), checkpointing := kt.Checkpointing(tmp_path / "ckpt", every_steps=2))
    assert checkpointing.latest().stem.endswith("6")
    before = read(tmp_path / "parts")
    resumed = run("parts", kt.Checkpointing(tmp_path / "ckpt", every_steps=2))
    run("whole")
    after, whole = read(tmp_path / "parts"), read(tmp_path / "whole")
    assert set(after) == set(whole)
    for tag, points in after.items():
        assert steps(before[tag]) == list(range(1, 8))
        assert steps(points) == steps(whole[tag]) == list(range(1, 13)), tag
        if points[0].plugin == "scalars":
            assert [point.number for point in points] == pytest.approx([point.number for point in whole[tag]], rel=1e-5)
    assert resumed.get_state()["written"] == 11  # of the first run the checkpoint knows 6


@pytest.mark.slow
def test_what_is_due_in_a_checkpoint_stays_due(make_model, watch, dataset, tmp_path):
    """The share of the first run left no time; the second writes what waits after its first update."""
    model = make_model()
    late = watch(model, every=5, max_share=1e-6)
    with pytest.raises(KeyboardInterrupt):
        fit(model, dataset, late, Killed(7), kt.Checkpointing(tmp_path / "ckpt", every_steps=2), epochs=3)
    assert not list((tmp_path / "logs").glob("events*"))
    model = make_model()
    fit(model, dataset, watch(model, every=5), kt.Checkpointing(tmp_path / "ckpt", every_steps=2), epochs=3)
    assert steps(read(tmp_path / "logs")["translation/sentence_1"]) == [7, 10, 12]


@pytest.mark.slow
def test_a_finished_training_is_not_written_again(make_model, watch, dataset, tmp_path, caplog):
    model = make_model()
    callback = watch(model)
    for _ in range(2):
        fit(model, dataset, callback, epochs=0)
        fit(model, dataset, callback, epochs=1)
        fit(model, dataset, callback, epochs=0)
    assert steps(read(tmp_path / "logs")["translation/sentence_1"]) == [0, 4, 8]
    assert "are not written again" not in caplog.text


@pytest.mark.slow
def test_two_replicas_show_what_one_shows(make_model, watch, dataset, tokenizer, tmp_path):
    with strategy(2).scope():
        two = make_model(dropout=0.0)
    one = make_model(dropout=0.0)
    one.set_weights(two.get_weights())
    for name, model in (("one", one), ("two", two)):
        fit(model, dataset.map(lambda *batch: batch), watch(model, PAIRS, tmp_path / name, every=2))
    ours, theirs = read(tmp_path / "two"), read(tmp_path / "one")
    assert set(ours) == set(theirs)
    for tag, points in theirs.items():
        assert steps(ours[tag]) == steps(points) == [2, 4, 6, 8], tag
        for mine, other in zip(ours[tag], points, strict=True):
            if mine.plugin == "scalars":
                assert mine.number == pytest.approx(other.number, abs=1e-4)
            if mine.plugin == "images":
                assert_same_picture(mine.pixels, other.pixels)


@pytest.mark.slow
def test_the_model_is_traced_once(make_model, watch, dataset):
    """However long the sentences are, and whatever comes out of them."""
    model = make_model()
    count, original = [0], model.encoder.call

    def call(*arguments, **options):
        count[0] += 1
        return original(*arguments, **options)

    model.encoder.call = call
    callback = watch(model, every=1)
    fit(model, dataset, callback, epochs=1)
    before = count[0]
    fit(model, dataset, callback, initial_epoch=1, epochs=3)
    assert count[0] == before > 0


@pytest.mark.slow
def test_beside_the_other_callbacks_in_one_directory(make_model, watch, dataset, tokenizer, tmp_path):
    model = make_model()
    directory = tmp_path / "logs"
    bleu = kt.BleuCallback(kt.Translator(model, tokenizer, max_target_length=8), PAIRS, num_beams=1)
    callbacks = [bleu, kt.TrainingCurves(directory, every=2), watch(model), keras.callbacks.TensorBoard(directory)]
    fit(model, dataset, *callbacks, validation_data=dataset)
    points = read(directory)
    for tag in ("update/loss", "update/learning_rate", "update/gradient_norm", "update/tokens_per_second"):
        assert steps(points[tag]) == [2, 4, 6, 8]
    for tag in ("epoch/val_bleu", "epoch/token_accuracy", "attention/cross/layer_1/sentence_1"):
        assert steps(points[tag]) == [4, 8]
    assert {"update/padding_share", "epoch/val_loss"} <= set(points)


def test_a_short_training_has_its_last_state_and_the_log_says_what_was_left_out(
    make_model, watch, dataset, tmp_path, caplog
):
    model = make_model()
    with caplog.at_level(logging.INFO, logger="keras_transformer"):
        fit(model, dataset, watch(model, every=2, max_share=0.02))
    assert steps(read(tmp_path / "logs")["attention/cross/layer_1/sentence_1"]) == [8]
    assert re.search(r"written 1 times in \d+\.\d s, .* left out 3 times \(max_share=0.02\)", caplog.text)


def test_a_target_that_is_too_long_is_cut_and_ended(make_model, tokenizer, dataset, tmp_path):
    """Beside a translation that is longer than it."""
    model = make_model()
    translator = kt.Translator(model, tokenizer, num_beams=1, max_length=4, min_target_length=7, max_target_length=7)
    watching = kt.AttentionTensorBoard(translator, [("o gato", "the cat sleeps here"), "o gato"], tmp_path, every=8)
    cut, longer = (look.attention for look in watching._watched.look())
    assert (len(cut.target_pieces), cut.target_pieces[-1]) == (4, "</s>")
    assert cut.cross.shape[2] == cut.decoder.shape[3] == len(cut.decoder_input_pieces) == 4
    assert len(longer.target_pieces) == longer.cross.shape[2] == 7


def test_a_directory_that_holds_higher_steps_is_said_to(make_model, watch, dataset, caplog):
    model, other = make_model(), make_model()
    fit(model, dataset, watch(model), epochs=2)
    with caplog.at_level(logging.WARNING, logger="keras_transformer"):
        fit(other, dataset, watch(other, every=1), epochs=1)
    assert caplog.text.count("holds points up to update 8, those up to there are not written again") == 1


def test_a_directory_that_cannot_be_made_is_named_before_the_training(make_model, watch, dataset, tmp_path):
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "logs"):
        model = make_model()
        for callback in (watch(model, directory=directory), kt.TrainingCurves(directory)):
            with pytest.raises(ValueError, match=r"`log_dir` must be a directory, .*Received: log_dir='.*file"):
                fit(model, dataset, callback)
        assert int(model.optimizer.iterations) == 0


class Seconds:
    """A clock that a test moves on."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def pass_by(self, seconds):
        self.now += seconds


def test_the_share_is_of_the_time_without_what_was_spent(monkeypatch):
    seconds, share = Seconds(monkeypatch), TimeShare(0.5)
    share.start()
    assert not share.fits(0.1)
    seconds.pass_by(2.0)
    assert share.fits(1.0)
    assert not share.fits(1.25)
    share.spent += 1.5
    assert not share.fits(0.0)  # 1.5 of the 0.5 without them
    share.stop()
    seconds.pass_by(50.0)
    assert share.seconds == 2.0
    other = TimeShare(0.5)
    other.set_state(json.loads(json.dumps(share.get_state())))
    other.start()
    seconds.pass_by(4.0)
    assert other.seconds == 6.0
    assert other.spent_share() == 1.5 / 4.5
    assert other.fits(0.75)
    assert not other.fits(1.0)
    assert TimeShare(None).fits(1e9)


class EachBatchTakes(keras.callbacks.Callback):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.pass_by(1.0)


def test_the_cost_is_within_its_share(make_model, watch, dataset, tmp_path, monkeypatch):
    """A batch takes a second, and a writing ten. Due at each update, it waits for room, also for that of the last."""
    seconds, write = Seconds(monkeypatch), EventWriter.write

    def slow_write(self, *args, **options):
        seconds.pass_by(10.0)
        write(self, *args, **options)

    monkeypatch.setattr(EventWriter, "write", slow_write)
    watching = watch(make_model(), every=1, max_share=0.4)
    fit(watching._watched.translator.model, dataset, EachBatchTakes(seconds), watching, epochs=50)
    first, *others = steps(read(tmp_path / "logs")["translation/sentence_1"])
    assert first < 50  # how long it takes was not known yet
    # After n writings there is room for two more from update u on, where 10 (n + 2) = 0.4 u.
    assert others == [75, 100, 125, 150, 175, 200]
    assert watching.get_state()["time"] == {"spent": 70.0, "seconds": 270.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, r"`every` must be a positive integer. Received: every=0"),
        ({"max_share": 0}, r"Received: max_share=0"),
        ({"max_share": -0.1}, r"Received: max_share=-0.1"),
        ({"max_share": "2%"}, r"Received: max_share='2%'"),
        ({"max_share": True}, r"Received: max_share=True"),
        ({"sentences": []}, r"`sentences` must be 1 to 8. Received: 0 sentences"),
        ({"sentences": ["a"] * 9}, r"`sentences` must be 1 to 8. Received: 9 sentences"),
        ({"layers": [2]}, r"`layers` must be among -2 to 1. Received: layers=\[2\]"),
        ({"layers": -3}, r"Received: layers=-3"),
        ({"layers": []}, r"Received: layers=\[\]"),
        ({"heads": [2]}, r"`heads` must be 1 to 16 of the heads 0 to 1. Received: heads=\[2\]"),
        ({"heads": -1}, r"Received: heads=-1"),
        ({"heads": []}, r"Received: heads=\[\]"),
    ],
)
def test_impossible_arguments_are_named(make_model, watch, options, message):
    with pytest.raises(ValueError, match=message):
        watch(make_model(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sentences": [5]}, r"pairs of strings. Received: 5"),
        ({"sentences": [("a", "b", "c")]}, r"Received: \('a', 'b', 'c'\)"),
        ({"sentences": [("a", 5)]}, r"Received: \('a', 5\)"),
        ({"layers": [0.5]}, r"`layers` must be one integer or several. Received: layers=\[0.5\]"),
        ({"heads": [True]}, r"`heads` must be one integer or several"),
    ],
)
def test_things_of_another_kind_are_named(make_model, watch, options, message):
    with pytest.raises(TypeError, match=message):
        watch(make_model(), **options)


def test_too_many_images_are_refused(make_model, watch):
    model = make_model(num_encoder_layers=6, num_decoder_layers=6)
    with pytest.raises(ValueError, match=r"96 images at most. Received: 8 sentences, layers=None, which make 144"):
        watch(model, ["a"] * 8, layers=None)


@pytest.mark.parametrize(
    ("pair", "error", "message"),
    [
        ("text", TypeError, r"pairs of encoder and decoder token ids, lists of integers. Received: 'text'"),
        (([5, 6], [0.5]), TypeError, r"lists of integers"),
        (([5, 6],), TypeError, r"lists of integers"),
        (([5, 6], []), ValueError, r"decoder token ids from 0 to 288, and not padding alone. Received: \[\]"),
        (([0, 0], [2]), ValueError, r"encoder token ids .* Received: \[0, 0\]"),
        (([5, 289], [2]), ValueError, r"Received: \[5, 289\]"),
        (([5], [2, -1]), ValueError, r"Received: \[2, -1\]"),
    ],
)
def test_impossible_ids_are_named(make_model, pair, error, message, tmp_path):
    with pytest.raises(error, match=message):
        kt.AttentionTensorBoard(make_model(), [pair], tmp_path)


def test_what_is_no_translator_is_named(tmp_path):
    with pytest.raises(
        TypeError, match=r"`translator` must be a `Translator` or a `Transformer`. Received: .*function"
    ):
        kt.AttentionTensorBoard(lambda texts: texts, ["a"], tmp_path)


def test_a_translator_of_another_model_is_refused(make_model, watch, dataset):
    with pytest.raises(ValueError, match="must translate with the model that is trained"):
        fit(make_model(), dataset, watch(make_model()))


WORKER = """
import json, os, sys
index, ports, directory = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
import keras, numpy as np
import keras_transformer as kt
strategy = kt.multi_worker_strategy(60)
import tensorflow as tf
keras.utils.set_random_seed(1)
with strategy.scope():
    model = kt.Transformer(30, None, 1, 1, d_model=16, num_heads=2, d_ff=24)
    model.build()
    model.compile("sgd", loss=kt.SmoothedCrossentropy())
ids = np.random.default_rng(1).integers(4, 30, (16, 5)).astype("int32")
data = tf.data.Dataset.from_tensor_slices(({"encoder_token_ids": ids, "decoder_token_ids": ids}, ids)).batch(4)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
watch = kt.AttentionTensorBoard(model, [([5, 6, 3], [2, 7])], directory, every=1, max_share=None)
model.fit(data.with_options(options), epochs=2, verbose=0, callbacks=[watch])
print(watch.get_state()["written"])
"""


@pytest.mark.slow
def test_of_two_workers_the_chief_writes_and_none_waits_for_ever(tmp_path):
    ports = ",".join(free_ports())
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(kt.__file__).parents[1]), "TF_CPP_MIN_LOG_LEVEL": "2"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(index), ports, str(tmp_path / "logs")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    ended = [worker.communicate(timeout=240) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    assert [output.split()[-1] for output, _ in ended] == ["8", "0"]
    assert len(list((tmp_path / "logs").glob("events*"))) == 1
    for tag, points in read(tmp_path / "logs").items():
        assert steps(points) == list(range(1, 9)), tag

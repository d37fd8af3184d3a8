"""TensorBoard on a run: its page shows the curves, the attention at a size that can be read, and the translations."""

import re
import subprocess
import sys

import keras
import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.ui import WebDriverWait

import keras_transformer as kt

HOSTILE = "<b>gato</b> | <img src=x onerror=document.title='hacked'> *dorme*"
CURVES = {
    "update": [
        *("update/loss", "update/learning_rate", "update/gradient_norm"),
        *("update/tokens_per_second", "update/padding_share"),
    ],
    "epoch": ["epoch/loss", "epoch/token_accuracy", "epoch/perplexity", "epoch/val_bleu"],
    "attention_entropy": [f"attention_entropy/{kind}/layer_1/head_4" for kind in ("encoder", "decoder", "cross")],
}
PAIRS = [("o gato dorme", "the cat sleeps"), ("um cão corre", "a dog runs")]

# TensorBoard's pages are Web components: what they show lies in shadow roots.
EVERYTHING = """
function* walk(root) {
  for (const element of root.querySelectorAll("*")) {
    yield element;
    if (element.shadowRoot) yield* walk(element.shadowRoot);
  }
}
const all = [...walk(document)];
"""
VISIBLE_LINES = (
    EVERYTHING
    + """
const texts = [];
for (const element of all) {
  if (!element.checkVisibility()) continue;
  for (const node of element.childNodes) {
    if (node.nodeType === Node.TEXT_NODE && node.data.trim()) texts.push(node.data.trim());
  }
}
return texts;
"""
)
IMAGES = (
    EVERYTHING
    + """
const box = (image) => [image.naturalWidth, image.naturalHeight, image.clientWidth, image.clientHeight];
return all.filter((x) => x.matches("tf-image-loader img") || x.src?.includes("individualImage"))
  .filter((x) => x.complete && x.naturalWidth).map(box);
"""
)
# Rows of the texts' tables, in the order shown: the newest step first.
TABLES = (
    EVERYTHING
    + """
return all.filter((x) => x.matches("table") && x.checkVisibility())
  .map((table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));
"""
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's directory, with all that this package writes for TensorBoard."""
    directory = tmp_path_factory.mktemp("run") / "logs"
    keras.utils.set_random_seed(1)
    texts = [side for pair in PAIRS for side in pair]
    tokenizer = kt.Tokenizer.train(texts * 10, vocabulary_size=280)
    model = kt.Transformer(280, None, 1, 1, d_model=16, num_heads=4, d_ff=24)
    metrics = [kt.TokenAccuracy(), kt.Perplexity()]
    model.compile("adam", loss=kt.SmoothedCrossentropy(), weighted_metrics=metrics, jit_compile=False)
    dataset = kt.make_dataset(kt.ParallelCorpus.from_pairs(PAIRS * 10), tokenizer, batch_tokens=80, max_length=20)
    translator = kt.Translator(model, tokenizer, max_target_length=8)
    model.fit(
        dataset,
        epochs=2,
        verbose=0,
        callbacks=[
            kt.BleuCallback(translator, PAIRS, num_beams=1),
            kt.TrainingCurves(directory, every=2),
            kt.AttentionTensorBoard(translator, [*PAIRS, HOSTILE], directory, every=2, max_share=None),
        ],
    )
    return directory


@pytest.fixture
def serve():
    """`serve(log_dir)`: the address of a TensorBoard of it, which ends with the test."""
    processes = []

    def serve(log_dir):
        options = ["--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", str(log_dir), *options],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        processes.append(process)
        said = ""
        for line in process.stderr:
            said += line
            if address := re.search(r" at (http://127\.0\.0\.1:\d+)", line):
                return address[1]
        raise AssertionError(f"TensorBoard did not start: {said}")

    yield serve
    for process in processes:
        process.terminate()
        process.communicate(timeout=30)


def shown(browser, url, script, expected):
    """What the script returns once `expected` finds it to be all there."""
    browser.get("about:blank")  # else another fragment is not another page
    browser.get(url)
    found = None

    def complete(browser):
        nonlocal found
        found = browser.execute_script(script)
        return expected(found)

    try:
        WebDriverWait(browser, 60).until(complete)
    except TimeoutException:
        pytest.fail(f"{url} shows: {found}")
    return found


def test_the_curves_are_found(browser, serve, run):
    address = serve(run)
    for group, tags in CURVES.items():
        lines = shown(
            browser,
            f"{address}/#scalars&tagFilter=^{group}%2F",
            VISIBLE_LINES,
            lambda lines, tags=tags: set(tags) <= set(lines),
        )
        assert "tag:" in lines


def test_the_attention_is_shown_pixel_for_pixel(browser, serve, run):
    """Small type is lost in a picture that TensorBoard makes narrower or wider."""
    address = serve(run)
    for number in (1, 2):
        url = f"{address}/#images&tagFilter=sentence_{number}"
        images = shown(browser, url, IMAGES, lambda found: len(found) >= 3)
        for width, height, shown_width, shown_height in images[:3]:  # those that the filter found come first
            assert (width, height) == (shown_width, shown_height)
            assert width == 350
        lines = browser.execute_script(VISIBLE_LINES)
        assert {f"attention/{kind}/layer_1/sentence_{number}" for kind in ("encoder", "decoder", "cross")} <= set(lines)


def test_the_translations_are_shown_and_no_markup_of_theirs_is_obeyed(browser, serve, run):
    sources = {source for source, _ in PAIRS} | {HOSTILE}  # they come one after the other

    def all_there(tables):
        return {cell for table in tables for row in table for cell in row} >= sources

    rows = [dict(table) for table in shown(browser, f"{serve(run)}/#text", TABLES, all_there)]
    assert {row["source"] for row in rows} == sources
    for row in rows:
        assert row.get("reference") == dict(PAIRS).get(row["source"])
        assert "translation" in row
    assert browser.title == "TensorBoard"

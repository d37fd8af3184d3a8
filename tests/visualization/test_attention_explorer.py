"""The page without a browser: what is in it, what never gets into it, and how large it is."""

import html
import json
import re

import numpy as np
import pytest

from keras_transformer.visualization.attention_explorer import attention_frame, attention_page
from keras_transformer.visualization.attention_maps import AttentionMaps

KINDS = ("cross", "encoder", "decoder")
SOURCE = ["▁São", "▁João", "▁não", "▁dorme", "<0xE2>", ".", "</s>"]
TARGET = ["▁Saint", "▁John", "▁sleeps", ".", "</s>"]
INPUTS = ["<s>", *TARGET[:-1]]


def softmax(rng, shape):
    scores = np.exp(rng.normal(0, 2, shape))
    return (scores / scores.sum(axis=-1, keepdims=True)).astype("float32")


def maps(source=SOURCE, inputs=INPUTS, target=TARGET, layers=2, heads=3):
    rng = np.random.default_rng(1)
    sizes = {"encoder": (source, source), "decoder": (target, inputs), "cross": (target, source)}
    weights = {kind: softmax(rng, (layers, heads, len(rows), len(keys))) for kind, (rows, keys) in sizes.items()}
    return AttentionMaps(source, inputs, target, **weights)


def data_of(page):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_the_pieces_and_the_weights_to_three_decimals(kind):
    attention = maps()
    data = data_of(attention.to_html())[kind]
    queries, keys = attention.labels(kind)
    assert (data["queries"], data["keys"]) == (queries, keys)
    assert data["heads"] == ["1", "2", "3", "mean"]
    shown, weights = np.array(data["weights"]) / 1000, getattr(attention, kind).astype("float64")
    np.testing.assert_allclose(shown[:, :3], weights, rtol=0, atol=0.000501)
    np.testing.assert_allclose(shown[:, 3], weights.mean(axis=1), rtol=0, atol=0.000501)


def test_the_mean_is_that_of_the_weights_and_not_of_what_is_shown():
    weights = np.zeros((1, 3, 1, 1))
    weights[0, :, 0, 0] = [0.1004, 0.1004, 0.1014]  # shown as 0.100, 0.100, 0.101; their mean is 0.1007
    page = AttentionMaps(["a"], ["b"], ["c"], weights, weights, weights).to_html()
    assert data_of(page)["cross"]["weights"] == [[[[100]], [[100]], [[101]], [[101]]]]


def test_layers_and_heads_may_differ_between_kinds():
    attention = maps()._replace(encoder=maps(layers=5, heads=7).encoder)
    data = data_of(attention.to_html())
    assert np.shape(data["encoder"]["weights"]) == (5, 8, 7, 7)
    assert np.shape(data["cross"]["weights"]) == (2, 4, 5, 7)


def test_one_of_everything():
    one = np.ones((1, 1, 1, 1), "float32")
    data = data_of(AttentionMaps(["</s>"], ["<s>"], ["</s>"], one, one, one).to_html())
    assert data["decoder"] == {"queries": ["</s>"], "keys": ["<s>"], "heads": ["1"], "weights": [[[[1000]]]]}


def test_any_type_of_number():
    attention = maps()
    half = attention._replace(**{kind: getattr(attention, kind).astype("float16") for kind in KINDS})
    ours, theirs = (np.array(data_of(each.to_html())["cross"]["weights"]) for each in (attention, half))
    assert np.abs(ours - theirs).max() <= 1


PIECES = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    '"><img src=x onerror=alert(1)>',
    "&lt;&amp;",
    "{{data}}",
    "{{title}}",
    "\u2028\u2029",
    "\\u003c",
    "\ud800",  # half a pair: what a cut in the middle of a character can leave
    "日本",
    "שלום",
    "\x00\r\n\t",
    "",
]


def test_pieces_are_data_and_never_markup():
    attention = maps(source=PIECES, target=PIECES, inputs=PIECES)
    page, plain = attention.to_html(), maps().to_html()
    assert data_of(page)["cross"]["keys"] == data_of(page)["decoder"]["queries"] == PIECES
    assert "alert(1)" in page
    # Between the tags of the data's script there is no character of markup at all.
    start = page.index('id="data">') + len('id="data">')
    assert not set("<>&") & set(page[start : page.index("</script>", start)])
    for tag in ("<script", "</script", "<img", "<!--"):
        assert page.count(tag) == plain.count(tag)


def test_the_page_is_ascii_and_so_the_same_in_every_encoding():
    page = maps(source=PIECES, target=PIECES, inputs=PIECES).to_html(title="São <João> \ud800")
    assert page.isascii()
    assert page.encode("cp1252") == page.encode("utf-8")


def test_the_title_is_text():
    assert "<title>Attention</title>" in maps().to_html()
    title = '</title><script>alert("São")</script>{{data}}'
    page = maps().to_html(title)
    written = "&lt;/title&gt;&lt;script&gt;alert(&quot;S&#227;o&quot;)&lt;/script&gt;{{data}}"
    assert page.count(written) == 2 == page.count(html.escape(title).replace("ã", "&#227;"))
    assert f'<h1 dir="auto">{written}</h1>' in page


def test_the_page_needs_nothing_else():
    page = maps().to_html()
    addresses = re.findall(r"(?:https?:)?//[\w.]+", page)
    assert set(addresses) <= {"http://www.w3.org"}  # the name of SVG, which nobody loads
    # What a page loads from: the icon, which is empty, alone.
    loads = re.findall(r'\b(?:src|href|srcset|poster|action)\s*=\s*"([^"]*)"|@import|url\(', page)
    assert loads == ["data:,"]
    assert "default-src 'none'" in page
    for way in (
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "sendBeacon",
        "import(",
        "innerHTML",
        "document.write",
        "eval(",
    ):
        assert way not in page


def test_the_page_is_small():
    one = np.ones((1, 1, 1, 1), "float32")
    assert len(AttentionMaps(["a"], ["b"], ["c"], one, one, one).to_html()) < 40_000
    pieces = [f"▁piece{index}" for index in range(40)]  # the base model, a sentence of 40 pieces
    assert len(maps(pieces, pieces, pieces, layers=6, heads=8).to_html()) < 1_000_000


def test_a_frame_for_a_notebook_holds_the_page():
    attention = maps(source=PIECES, target=PIECES, inputs=PIECES)
    frame = attention._repr_html_()
    (source,) = re.findall(
        r'^<iframe title="Attention" sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>$', frame
    )
    assert html.unescape(source) == attention.to_html()
    assert not set("<>") & set(source)
    assert "height:300px" in attention_frame(attention, height=300)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cross": np.zeros((2, 3, 7, 5))}, r"`attention.cross` must be \(layers, heads, 5, 7\).*shape=\(2, 3, 7, 5\)"),
        ({"encoder": np.zeros((3, 7, 7))}, r"`attention.encoder` must be .* shape=\(3, 7, 7\)"),
        ({"decoder": np.zeros((0, 3, 5, 5))}, r"`attention.decoder` must be .* shape=\(0, 3, 5, 5\)"),
        ({"target_pieces": TARGET[1:]}, r"`attention.decoder` must be \(layers, heads, 4, 5\)"),
    ],
)
def test_pieces_and_weights_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        maps()._replace(**change).to_html()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.125, 1.5])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_weight_is_named(kind, value):
    weights = getattr(maps(), kind).copy()
    weights[1, 2, 3, 4] = value
    with pytest.raises(ValueError, match=rf"`attention.{kind}` .* Received: {value} in \[1, 2, 3, 4\]"):
        maps()._replace(**{kind: weights}).to_html()


def test_rounding_beyond_0_and_1_is_forgiven():
    weights = maps().cross.copy()
    weights[0, 0, 0, :2] = [1.0000002, -1e-7]
    shown = data_of(maps()._replace(cross=weights).to_html())["cross"]["weights"][0][0][0]
    assert shown[:2] == [1000, 0]


def test_something_else_is_refused():
    with pytest.raises(TypeError, match=r"`attention` must be AttentionMaps. Received: attention='a sentence'"):
        attention_page("a sentence")

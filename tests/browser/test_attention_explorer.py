"""The attention explorer as people use it: with a mouse, with the keys alone, with a finger on a narrow screen."""

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from keras_transformer.visualization.attention_maps import AttentionMaps

# Two layers, three heads, five pieces that look at seven: no two sizes are the same.
SOURCE = ["▁São", "▁João", "▁não", "▁dorme", "<0xE2>", ".", "</s>"]
TARGET = ["▁Saint", "▁John", "▁sleeps", ".", "</s>"]
INPUTS = ["<s>", *TARGET[:-1]]
NAMES = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
}
HOSTILE = [
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "</script><script>window.hacked=1</script>",
    "<svg/onload=window.hacked=1>",
    "javascript:window.hacked=1",
]


def maps(source=SOURCE, inputs=INPUTS, target=TARGET, layers=2, heads=3):
    rng = np.random.default_rng(1)

    def softmax(rows, keys):
        scores = np.exp(rng.normal(0, 2, (layers, heads, len(rows), len(keys))))
        return (scores / scores.sum(axis=-1, keepdims=True)).astype("float32")

    return AttentionMaps(
        source, inputs, target, softmax(source, source), softmax(target, inputs), softmax(target, source)
    )


@pytest.fixture
def show(browser, tmp_path):
    """Writes a page and opens it; returns its address."""

    def open_page(html):
        path = tmp_path / "attention.html"
        path.write_text(html, encoding="utf-8")
        browser.get(path.as_uri())
        return path.as_uri()

    return open_page


def emulate(browser, width, height=800):
    """A phone: a narrow screen and a finger."""
    size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})


def colour_scheme(browser, name):
    feature = {"name": "prefers-color-scheme", "value": name}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def texts(browser, selector):
    """What elements show, as a list; read in one step, since a page may have hundreds of them."""
    script = "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)"
    return browser.execute_script(script, selector)


def chips(browser):
    return browser.find_elements(By.CSS_SELECTOR, "#queries [role=option]")


def point_at(browser, element):
    ActionChains(browser).scroll_to_element(element).move_to_element(element).perform()


def choose(browser, group, name):
    """A click on one of the buttons of kind, layer or head."""
    (label,) = [each for each in browser.find_elements(By.CSS_SELECTOR, f"#{group} label") if each.text == name]
    label.click()


def chosen(browser):
    """The names of the chosen kind, layer and head."""
    return texts(browser, "form input:checked + span")


def assert_shown(browser, attention, kind, layer, head, piece):
    """That the page shows these weights, as numbers, and in the words of the line below."""
    queries, keys = attention.labels(kind)
    heads = getattr(attention, kind)[layer].astype("float64")
    row = (heads.mean(axis=0) if head == "mean" else heads[head])[piece]
    assert texts(browser, "#keys .chip bdi") == keys
    assert texts(browser, "#queries .chip bdi") == queries
    shown = [float(text) for text in texts(browser, "#keys .weight")]
    np.testing.assert_allclose(shown, row, rtol=0, atol=0.000501)
    assert texts(browser, "#queries .chip.shown") == [queries[piece]]
    (line,) = texts(browser, "#readout")
    name = "mean of the heads" if head == "mean" else f"head {head + 1}"
    assert line.startswith(
        f"Layer {layer + 1}, {name}: {queries[piece]} looks at {keys[row.argmax()]} {row.max():.3f}, "
    )


@pytest.mark.parametrize("kind", NAMES)
def test_pointing_at_a_piece_shows_the_weights_of_the_chosen_head(browser, show, kind):
    attention = maps()
    show(attention.to_html())
    if kind != "cross":
        choose(browser, "kinds", NAMES[kind])
    for layer, head, piece in [(0, 0, 1), (0, 2, 4), (1, 1, 0), (1, "mean", 3)]:
        choose(browser, "layers", str(layer + 1))
        choose(browser, "heads", head if head == "mean" else str(head + 1))
        point_at(browser, chips(browser)[piece])
        assert_shown(browser, attention, kind, layer, head, piece)
        # And where every other head looked: the piece below its small map.
        keys = attention.labels(kind)[1]
        weights = getattr(attention, kind)
        weights = np.concatenate([weights, weights.mean(axis=1, keepdims=True)], axis=1)
        most = weights[:, :, piece].argmax(axis=-1).ravel()
        assert texts(browser, "#grid .most") == [keys[each] for each in most]


def test_it_opens_on_the_last_layer_of_cross_attention(browser, show):
    attention = maps()
    show(attention.to_html("São João"))
    assert browser.title == "São João"
    assert chosen(browser) == ["cross-attention", "2", "1"]
    assert_shown(browser, attention, "cross", 1, 0, 0)


def test_a_click_keeps_a_piece_and_pointing_only_looks(browser, show):
    attention = maps()
    show(attention.to_html())
    chips(browser)[2].click()
    point_at(browser, chips(browser)[4])
    assert_shown(browser, attention, "cross", 1, 0, 4)
    point_at(browser, browser.find_element(By.TAG_NAME, "h1"))
    assert_shown(browser, attention, "cross", 1, 0, 2)
    choose(browser, "layers", "1")
    choose(browser, "kinds", NAMES["decoder"])  # the same pieces look: it stays
    assert_shown(browser, attention, "decoder", 0, 0, 2)


def test_a_small_map_chooses_its_head(browser, show):
    attention = maps()
    show(attention.to_html())
    cells = browser.find_elements(By.CSS_SELECTOR, "#grid [role=gridcell]")
    assert len(cells) == 2 * 4
    cells[2].click()
    assert chosen(browser) == ["cross-attention", "1", "3"]
    assert_shown(browser, attention, "cross", 0, 2, 0)
    assert texts(browser, "#map-title")[0].startswith("Layer 1 of 2, head 3")
    cells[7].click()
    assert chosen(browser) == ["cross-attention", "2", "mean"]
    assert_shown(browser, attention, "cross", 1, "mean", 0)


PIXELS = """
const canvas = document.querySelector(arguments[0]);
return [canvas.width, canvas.height, [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]];
"""


def luminances(browser, selector):
    """Rows of how light each pixel of a canvas is."""
    width, height, values = browser.execute_script(PIXELS, selector)
    return np.reshape(values, (height, width, 4))[..., :3].sum(axis=-1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_maps_are_darker_or_lighter_where_more_was_looked(browser, show, scheme):
    colour_scheme(browser, scheme)
    attention = maps()
    show(attention.to_html())
    for selector, weights in {
        "#cells canvas": attention.cross[1, 0],
        "#grid [data-layer='0'][data-head='2'] canvas": attention.cross[0, 2],
    }.items():
        light = luminances(browser, selector)
        assert light.shape == weights.shape
        order = light.ravel()[np.argsort(weights, axis=None)]
        assert (np.diff(order) <= 0).all() if scheme == "light" else (np.diff(order) >= 0).all()
        assert abs(order[-1] - order[0]) > 200


def test_pointing_into_the_large_map_names_the_cell(browser, show):
    attention = maps()
    show(attention.to_html())
    cells = browser.find_element(By.ID, "cells")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cells)
    width, height = cells.size["width"], cells.size["height"]
    row, column = 3, 5
    x, y = round(width * (column + 0.5) / 7 - width / 2), round(height * (row + 0.5) / 5 - height / 2)
    ActionChains(browser).move_to_element_with_offset(cells, x, y).perform()
    weight = attention.cross[1, 0, row, column]
    assert texts(browser, "#readout") == [f"Layer 2, head 1: {TARGET[row]} looks at {SOURCE[column]} {weight:.3f}"]
    assert texts(browser, "#keys .pointed bdi") == [SOURCE[column]]
    ActionChains(browser).click().perform()
    point_at(browser, browser.find_element(By.TAG_NAME, "h1"))
    assert texts(browser, "#keys .pointed bdi") == []
    assert_shown(browser, attention, "cross", 1, 0, row)


def press(browser, *keys):
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def test_the_keys_alone_reach_everything(browser, show):
    attention = maps()
    show(attention.to_html())
    focus = "const element = document.activeElement; return element.name || element.closest('[id]').id"
    visited = []
    for _ in range(6):
        press(browser, Keys.TAB)
        visited.append(browser.execute_script(focus))
        ring = "return getComputedStyle(document.activeElement.matches('input') ? document.activeElement.nextSibling "
        assert browser.execute_script(f"{ring}: document.activeElement).outlineStyle") == "solid"
    assert visited == ["kinds", "layers", "heads", "queries", "grid", "scroll"]

    show(attention.to_html())
    press(browser, Keys.TAB, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert chosen(browser)[0] == NAMES["decoder"]
    press(browser, Keys.TAB, Keys.ARROW_LEFT)
    assert chosen(browser)[1] == "1"
    press(browser, Keys.TAB, Keys.ARROW_RIGHT)
    assert chosen(browser)[2] == "2"
    press(browser, Keys.TAB, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert_shown(browser, attention, "decoder", 0, 1, 2)
    for keys, piece in [([Keys.END], 4), ([Keys.ARROW_RIGHT], 4), ([Keys.HOME], 0), ([Keys.ARROW_LEFT], 0)]:
        press(browser, *keys)
        assert_shown(browser, attention, "decoder", 0, 1, piece)
        assert browser.switch_to.active_element.text == TARGET[piece]
    ActionChains(browser).key_down(Keys.CONTROL).send_keys(Keys.ARROW_RIGHT).key_up(Keys.CONTROL).perform()
    assert_shown(browser, attention, "decoder", 0, 1, 0)  # with another key it is the browser's
    press(browser, Keys.TAB, Keys.ARROW_DOWN)
    assert_shown(browser, attention, "decoder", 1, 1, 0)
    press(browser, Keys.END)
    assert_shown(browser, attention, "decoder", 1, "mean", 0)
    press(browser, Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert_shown(browser, attention, "decoder", 0, 2, 0)
    assert chosen(browser) == [NAMES["decoder"], "1", "3"]
    # Back to the piece that was left, and nothing else on the way.
    ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
    assert browser.switch_to.active_element.text == TARGET[0]


def test_what_a_screen_reader_is_told(browser, show):
    attention = maps()
    show(attention.to_html())
    chips(browser)[1].click()
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        (
            node["role"]["value"],
            node.get("name", {}).get("value"),
            {each["name"]: each["value"].get("value") for each in node["properties"]},
        )
        for node in nodes
        if not node["ignored"] and "properties" in node
    ]

    def names(role, **properties):
        return [name for has, name, own in named if has == role and properties.items() <= own.items()]

    assert names("option") == [piece.lstrip("▁") for piece in TARGET]  # "▁" is not spoken
    assert names("option", selected=True) == ["John"]
    assert names("listbox") == ["Looking: target pieces"]
    assert names("radio", checked="true") == ["cross-attention", "2", "1"]
    assert names("group") == ["Kind", "Layer", "Head"]
    most = attention.cross[1, 0, 1]
    assert names("gridcell", selected=True) == [f"Layer 2, head 1: most at {SOURCE[most.argmax()]} {most.max():.3f}"]
    assert len(names("gridcell")) == 8
    assert browser.find_element(By.ID, "readout").get_attribute("aria-live") == "polite"


LONG = [f"▁palavra{index}" for index in range(58)] + ["▁" + "comprida" * 20, "</s>"]


# What sticks out to the right, but for what is in a box that scrolls or cuts.
OUTSIDE = """
return [...document.querySelectorAll("main *:not(#scroll *, svg *, #grid .most *)")]
  .filter((element) => element.getBoundingClientRect().right > innerWidth)
  .map((element) => element.id || element.className);
"""


@pytest.mark.parametrize("pieces", [(SOURCE, TARGET), (LONG, LONG), (HOSTILE, HOSTILE)], ids=["short", "long", "odd"])
def test_a_phone_scrolls_in_one_direction_only(browser, show, pieces):
    emulate(browser, 375)
    source, target = pieces
    show(maps(source, ["<s>", *target[:-1]], target, layers=6, heads=8).to_html("Uma frase " + "comprida" * 20))
    for name in NAMES.values():
        choose(browser, "kinds", name)
        width, window = browser.execute_script("return [document.scrollingElement.scrollWidth, innerWidth]")
        assert width <= window == 375
        assert browser.execute_script(OUTSIDE) == []


def tap(browser, element):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    box = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", element)
    point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_tap_chooses(browser, show):
    emulate(browser, 375)
    attention = maps()
    show(attention.to_html())
    WebDriverWait(browser, 20).until(lambda browser: len(chips(browser)) == 5)
    for piece in (3, 1):
        tap(browser, chips(browser)[piece])
        WebDriverWait(browser, 20).until(lambda browser, p=piece: texts(browser, "#queries .shown") == [TARGET[p]])
        assert_shown(browser, attention, "cross", 1, 0, piece)
    tap(browser, browser.find_element(By.CSS_SELECTOR, "#grid [data-layer='0'][data-head='2']"))
    WebDriverWait(browser, 20).until(lambda browser: chosen(browser)[1:] == ["1", "3"])
    assert_shown(browser, attention, "cross", 0, 2, 1)
    tap(browser, browser.find_elements(By.CSS_SELECTOR, "#kinds label")[1])
    WebDriverWait(browser, 20).until(lambda browser: chosen(browser)[0] == NAMES["encoder"])
    assert_shown(browser, attention, "encoder", 0, 2, 1)
    tap(browser, browser.find_element(By.ID, "cells"))  # its middle
    WebDriverWait(browser, 20).until(lambda browser: texts(browser, "#queries .shown") == [SOURCE[3]])


def test_markup_in_pieces_and_title_is_shown_and_not_run(browser, show):
    attention = maps(HOSTILE, ["<s>", *HOSTILE[:-1]], HOSTILE)
    show(attention.to_html(HOSTILE[2]))
    for name in NAMES.values():
        choose(browser, "kinds", name)
        for chip in chips(browser):
            point_at(browser, chip)
            assert chip.text in HOSTILE
    assert_shown(browser, attention, "decoder", 1, 0, 4)
    assert browser.title == HOSTILE[2] == browser.find_element(By.TAG_NAME, "h1").text
    assert browser.execute_script("return typeof window.hacked") == "undefined"
    assert browser.execute_script("return document.querySelectorAll('img, main script, svg svg').length") == 0


TRY_TO_LOAD = """
const [done, blocked] = [arguments[0], []];
addEventListener("securitypolicyviolation", (event) => {
  if (blocked.push(event.effectiveDirective) === 4) done(blocked.sort());
});
const address = "http://127.0.0.1:9/";
fetch(address).catch(() => {});
for (const tag of ["img", "script", "iframe"]) {
  document.body.append(Object.assign(document.createElement(tag), { src: address }));
}
setTimeout(() => done(blocked.sort()), 20000);
"""


def test_the_page_may_load_nothing(browser, show):
    """The policy on the page: also a script that found its way in could fetch and send nothing."""
    show(maps().to_html())
    blocked = browser.execute_async_script(TRY_TO_LOAD)
    assert blocked == ["connect-src", "frame-src", "img-src", "script-src-elem"]
    browser.get_log("browser")  # names them too, and the fixture would take that for a fault of the page


CONTRAST = """
const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const light = (colour) => {
  const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number).map(channel);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const ground = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return colour === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : colour;
};
const selector =
  ".chip, .weight, h1, h2, footer p, kbd, legend, form span, #readout, #scale, #scale span, .label, .name, .most";
return [...document.querySelectorAll(selector)].filter((element) => element.textContent).map((element) => {
  const pair = [light(getComputedStyle(element).color), light(ground(element))];
  return [(Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05), element.className || element.id || element.tagName];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_shade(browser, show, scheme):
    colour_scheme(browser, scheme)
    pieces = [f"▁{step}" for step in range(101)]
    weights = np.linspace(0, 1, 101).reshape(1, 1, 1, 101)
    square = np.zeros((1, 1, 101, 101))
    show(AttentionMaps(pieces, ["<s>"], ["▁all"], square, np.ones((1, 1, 1, 1)), weights).to_html())
    contrasts = browser.execute_script(CONTRAST)
    assert len(contrasts) > 200
    assert min(contrasts)[0] >= 4.5, min(contrasts)


def test_the_scheme_may_change_while_the_page_is_open(browser, show):
    colour_scheme(browser, "light")
    attention = maps()
    show(attention.to_html())
    before = luminances(browser, "#cells canvas")
    point_at(browser, chips(browser)[3])
    colour_scheme(browser, "dark")
    # The page hears of it after its style has changed, and draws anew.
    WebDriverWait(browser, 20).until(lambda browser: luminances(browser, "#cells canvas").min() < before.min())
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 26)"
    least = int(attention.cross[1, 0, 3].argmin())
    ground = browser.execute_script(
        "return document.querySelectorAll('#keys .chip')[arguments[0]].style.background", least
    )
    assert max(int(value) for value in ground[4:-1].split(",")) < 128
    assert_shown(browser, attention, "cross", 1, 0, 3)


def test_pieces_that_the_mask_hides_have_no_number(browser, show):
    attention = maps()
    causal = np.tril(attention.decoder)
    causal /= causal.sum(axis=-1, keepdims=True)
    show(attention._replace(decoder=causal).to_html())
    choose(browser, "kinds", NAMES["decoder"])
    point_at(browser, chips(browser)[1])
    numbers = texts(browser, "#keys .weight")
    assert numbers == [f"{weight:.3f}" for weight in causal[1, 0, 1, :2]] + ["later"] * 3
    point_at(browser, chips(browser)[4])
    assert texts(browser, "#keys .weight") == [f"{weight:.3f}" for weight in causal[1, 0, 4]]


def test_a_row_that_looks_at_nothing(browser, show):
    nothing = np.zeros((1, 1, 1, 1))
    show(AttentionMaps(["▁a"], ["<s>"], ["</s>"], nothing, nothing, nothing).to_html())
    assert texts(browser, "#readout") == ["Layer 1, head 1: </s> looks at nothing."]
    assert texts(browser, "#keys .weight") == ["0.000"]
    assert texts(browser, "#heads span") == ["1"]  # no mean of one
    choose(browser, "kinds", NAMES["encoder"])
    assert texts(browser, "#readout") == ["Layer 1, head 1: ▁a looks at nothing."]


def test_a_script_that_runs_from_right_to_left(browser, show):
    hebrew = ["▁שלום", "▁לכולם", "."]
    attention = maps(hebrew, INPUTS, TARGET)
    show(attention.to_html())
    choose(browser, "kinds", NAMES["encoder"])
    left = "return [...document.querySelectorAll('#queries .chip')].map((chip) => chip.getBoundingClientRect().left)"
    assert browser.execute_script(left) == sorted(browser.execute_script(left), reverse=True)
    chips(browser)[0].click()
    press(browser, Keys.ARROW_LEFT)
    assert_shown(browser, attention, "encoder", 1, 0, 1)
    press(browser, Keys.ARROW_RIGHT)
    assert_shown(browser, attention, "encoder", 1, 0, 0)


def test_kinds_of_different_depth(browser, show):
    attention = maps()._replace(encoder=maps(layers=5, heads=7).encoder)
    show(attention.to_html())
    choose(browser, "kinds", NAMES["encoder"])
    choose(browser, "layers", "5")
    choose(browser, "heads", "7")
    chips(browser)[6].click()
    assert_shown(browser, attention, "encoder", 4, 6, 6)
    choose(browser, "kinds", NAMES["cross"])  # which has no such layer, head or piece
    point_at(browser, browser.find_element(By.TAG_NAME, "h1"))
    assert chosen(browser) == ["cross-attention", "2", "mean"]
    assert_shown(browser, attention, "cross", 1, "mean", 4)


def test_two_hundred_pieces_of_the_base_model(browser, show):
    pieces = [f"▁p{index}" for index in range(200)]
    attention = maps(pieces, pieces, pieces, layers=6, heads=8)
    show(attention.to_html())
    point_at(browser, chips(browser)[123])
    assert_shown(browser, attention, "cross", 5, 0, 123)


def test_outputs_of_a_notebook_do_not_meet_it_or_each_other(browser, show):
    first, second = maps(), maps(HOSTILE, ["<s>", *HOSTILE[:-1]], HOSTILE)
    style = "<style>div, li, span { display: none !important; color: red !important }</style>"
    show(f"<!doctype html>{style}<h1 id='readout'>The notebook</h1>{first._repr_html_()}{second._repr_html_()}")
    frames = browser.find_elements(By.TAG_NAME, "iframe")
    for frame, attention, piece in zip(frames, (first, second), (3, 2), strict=True):
        browser.switch_to.frame(frame)
        WebDriverWait(browser, 20).until(lambda browser: len(chips(browser)) == 5)
        choose(browser, "heads", "2")
        chips(browser)[piece].click()
        assert_shown(browser, attention, "cross", 1, 1, piece)
        reach = "try { return parent.document.title } catch (error) { return error.name }"
        assert browser.execute_script(reach) == "SecurityError"  # what runs in it has no way to the notebook
        browser.switch_to.default_content()
    browser.switch_to.frame(frames[0])
    assert_shown(browser, first, "cross", 1, 1, 3)  # the second one's clicks did not come here
    browser.switch_to.default_content()
    assert browser.find_element(By.ID, "readout").text == "The notebook"
    assert browser.execute_script("return typeof window.hacked") == "undefined"

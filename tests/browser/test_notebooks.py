"""The notebooks run from top to bottom, and what is stored of them is whole, and of no machine.

`01_attention.ja.ipynb` is not run: its code cells are those of `01_attention.ipynb`, which is (compared below), and to
run the same cells again would show nothing new.
"""

import getpass
import importlib.util
import json
import pathlib
import re
import shutil
import socket
import time

import nbformat
import psutil
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
NAMES = ("01_attention", "02_train_and_translate", "03_serve")
STORED = (*NAMES, "01_attention.ja")
MEGABYTES = 1.5

spec = importlib.util.spec_from_file_location("execute_notebooks", ROOT / "tools" / "execute_notebooks.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def read(name):
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)


def cells(notebook, kind):
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def kinds_of_output(cell):
    """What a cell shows, without its contents."""
    return {kind for output in cell.outputs for kind in output.get("data", {output.get("name", "error"): None})}


def processes_in(directory):
    """Those that were started there and still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and pathlib.Path(process.cwd()).is_relative_to(directory):
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.parametrize("name", NAMES)
def test_runs_from_top_to_bottom(name, tmp_path):
    # A copy with the repository's layout around it, so that relative paths hold and nothing is written into ours.
    (tmp_path / "notebooks").mkdir()
    for beside in ("examples", "tests"):
        (tmp_path / beside).symlink_to(ROOT / beside)
    shutil.copy(NOTEBOOKS / f"{name}.ipynb", tmp_path / "notebooks")
    notebook = read(name)
    stored = {cell.id: kinds_of_output(cell) for cell in cells(notebook, "code")}
    # The time limit is a guard against a cell that hangs, not a measure of speed. Raises at the first cell that fails.
    tool.execute(notebook, tmp_path / "notebooks", timeout=900)
    tool.clean(notebook)
    shown = {cell.id: kinds_of_output(cell) for cell in cells(notebook, "code")}
    assert shown == stored  # a cell that shows something has it stored, and the other way round
    deadline = time.monotonic() + 30
    while (left := processes_in(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == []


@pytest.mark.parametrize("name", STORED)
def test_is_stored_as_it_ran(name):
    notebook = read(name)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    code = cells(notebook, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < MEGABYTES * 1e6


@pytest.mark.parametrize("name", STORED)
def test_tells_nothing_of_the_machine(name):
    notebook = read(name)
    shown = [notebook.metadata, *(cell.metadata for cell in notebook.cells)]
    for cell in cells(notebook, "code"):
        for output in cell.outputs:
            shown.append(output.get("text", ""))
            shown.append({kind: data for kind, data in output.get("data", {}).items() if not kind.startswith("image/")})
    text = json.dumps(shown, ensure_ascii=False)
    for pattern in (r"/home/", r"/root\b", r"/Users/", r"/tmp/", r"[A-Z]:\\\\", "site-packages", r"\.venv"):
        assert not re.search(pattern, text), pattern
    for word in (str(ROOT), f"/{getpass.getuser()}/", socket.gethostname()):
        assert word == "localhost" or word not in text, word


@pytest.mark.parametrize(
    ("name", "phrase"), [*((name, "you will know") for name in NAMES), ("01_attention.ja", "わかる")]
)
def test_opens_with_what_the_reader_will_know(name, phrase):
    opening = read(name).cells[0]
    assert opening.cell_type == "markdown"
    assert opening.source.startswith("# ")
    introduction, _, items = opening.source.partition("\n- ")
    assert phrase in introduction
    assert items.count("\n- ") >= 3


@pytest.mark.parametrize("name", STORED)
def test_its_links_lead_somewhere(name):
    text = "".join(cell.source for cell in cells(read(name), "markdown"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert target.startswith("https://") or (NOTEBOOKS / target).exists(), target


def test_the_japanese_notebook_has_the_same_cells_and_pictures():
    english, japanese = read("01_attention"), read("01_attention.ja")
    assert [(cell.id, cell.cell_type) for cell in english.cells] == [
        (cell.id, cell.cell_type) for cell in japanese.cells
    ]
    for ours, theirs in zip(cells(english, "code"), cells(japanese, "code"), strict=True):
        assert ours.source == theirs.source
        assert ours.outputs == theirs.outputs
    for ours, theirs in zip(cells(english, "markdown"), cells(japanese, "markdown"), strict=True):
        assert re.search("[ぁ-ん]", theirs.source), theirs.id
        assert ours.source.count("$$") == theirs.source.count("$$")
        assert ours.source.count("\n- ") == theirs.source.count("\n- ")


@pytest.mark.parametrize(
    ("name", "section", "try_it"),
    [("01_attention", "section", "**Try it.**"), ("01_attention.ja", "[節章]", "**試してみよう。**")],
)
def test_each_step_has_a_section_a_formula_code_a_picture_and_something_to_try(name, section, try_it):
    steps, step = [], None
    for cell in read(name).cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            step = None
            if re.match(r"## \d+\. ", cell.source):
                step = {"heading": cell.source.partition("\n")[0], "text": "", "pictures": 0, "calls": 0}
                steps.append(step)
        if step is None:
            continue
        if cell.cell_type == "markdown":
            step["text"] += cell.source
        else:
            step["calls"] += cell.source.count("kt.")
            step["pictures"] += sum("image/png" in output.get("data", {}) for output in cell.outputs)
    assert [int(step["heading"].split()[1].rstrip(".")) for step in steps] == list(range(1, 15))
    for step in steps:
        assert re.search(section, step["heading"]), step["heading"]
        assert step["text"].count("$$") >= 2, step["heading"]
        assert step["calls"] >= 1, step["heading"]
        assert step["pictures"] == 1, step["heading"]
        assert step["text"].count(try_it) == 1, step["heading"]

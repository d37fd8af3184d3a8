"""Runs notebooks from top to bottom and stores their outputs.

    python tools/execute_notebooks.py                          # all of notebooks/
    python tools/execute_notebooks.py notebooks/01_attention.ipynb

A translation of a notebook, `NAME.ja.ipynb`, has the same code cells: it is not run again, and gets the outputs of
`NAME.ipynb`. Pictures are stored in 256 colours, a third of the size; cells' times, TensorFlow's log and the frame that
showed TensorBoard are not. Needs `pip install '.[notebooks,serving]'`.
"""

import argparse
import base64
import io
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
# What TensorFlow writes before it knows that it should not; TF_CPP_MIN_LOG_LEVEL comes too late for it.
_LOG = re.compile(r"^(WARNING: All log messages before absl::|[IWE]\d{4} 00:00:\d+\.\d+ ).*\n?", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Executes the notebooks in place; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", nargs="*", type=Path, help="all but translations if not given")
    args = parser.parse_args(arguments)
    paths = args.notebook or [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if "." not in path.stem]
    for path in paths:
        began = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        execute(notebook, path.parent)
        clean(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e6:.2f} MB")
        for translation in sorted(path.parent.glob(f"{path.stem}.*.ipynb")):
            translated = nbformat.read(translation, as_version=4)
            copy_outputs(notebook, translated)
            nbformat.write(translated, translation)
            print(f"{translation.name}: the same outputs")
    return 0


def execute(notebook: Any, directory: Path, timeout: float = 600) -> None:
    """Runs all cells in a new kernel in `directory`; raises `CellExecutionError` at the first that fails."""
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute()


def clean(notebook: Any) -> None:
    """Takes out of the outputs what is of this run alone, and makes the pictures small."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                output.text = _LOG.sub("", output.text)
            if "tensorboard-frame-" in output.get("data", {}).get("text/html", ""):  # of a server that is gone
                output.data = {"text/plain": "(TensorBoard, as long as the notebook runs)"}
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _fewer_colours(output.data["image/png"])
        cell.outputs = [output for output in cell.outputs if output.output_type != "stream" or output.text.strip()]
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {"name": "python"}


def _fewer_colours(png: str) -> str:
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    buffer = io.BytesIO()
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def copy_outputs(source: Any, target: Any) -> None:
    """Gives the code cells of a translation the outputs of the original's, which must be the same cells."""
    ours, theirs = ([cell for cell in book.cells if cell.cell_type == "code"] for book in (source, target))
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        raise ValueError("The translation's code cells are not those of the original: copy them first.")
    for our, their in zip(ours, theirs, strict=True):
        their.outputs, their.execution_count = our.outputs, our.execution_count
    target.metadata = source.metadata


if __name__ == "__main__":
    sys.exit(main())

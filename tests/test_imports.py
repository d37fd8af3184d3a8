"""What importing the package loads, and which room may import which."""

import ast
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import keras_transformer as kt

PACKAGE = pathlib.Path(kt.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# Data flows down this list: a module imports from rooms above its own and from its own.
ROOMS = ["text", "data", "layers", "models", "decoding", "training", "visualization", "serving"]
ON_KERAS_OPS_ALONE = {"layers", "models", "decoding"}
MAY_LOAD_TENSORFLOW_LATE = {"models/distributed_model.py"}
# Loaded by distributed_model.py where TensorFlow is Keras' backend, and only there, as the JAX tests see.
ON_TENSORFLOW_ALONE = {
    "models/adam_step.py",
    "models/optimizer_update.py",
    "models/replica_step.py",
    "models/tensorflow_trainer.py",
}

WITHOUT_TF_TEXT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow_text":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_python(code, **environment):
    """What the code prints in a fresh process."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def module_name(path):
    return str(path.relative_to(PACKAGE))


def room_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def imported_names(node):
    """The dotted names that one statement imports: `from a import b` may be a module `a` or `a.b`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: write imports in full"
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def imports(path, late=True):
    """All names imported by a module; with `late=False` those alone that it imports when it is loaded."""
    found, waiting = [], [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        found.extend((name, node.lineno) for name in imported_names(node))
        if late or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def test_the_package_is_found_whole():
    assert set(ROOMS) >= {room_of(path) for path in MODULES} - {None}
    assert {"layers/masks.py", "models/transformer.py", "training/losses.py"} <= {module_name(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_an_import_goes_up_the_list_or_stays_in_its_room(path):
    room = room_of(path)
    if room is None:
        return  # the package's own names come from every room
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "keras_transformer" and len(parts) > 1 and parts[1] in ROOMS:
            assert parts[1] in allowed, f"{module_name(path)}:{line} imports {name}"
        assert name != "keras_transformer", f"{module_name(path)}:{line} imports the package as a whole"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if room_of(path) in ON_KERAS_OPS_ALONE and module_name(path) not in ON_TENSORFLOW_ALONE],
    ids=module_name,
)
def test_layers_models_and_decoding_import_no_tensorflow(path):
    late = module_name(path) not in MAY_LOAD_TENSORFLOW_LATE
    for name, line in imports(path, late=late):
        assert name.partition(".")[0] not in {"tensorflow", "tensorflow_text", "jax", "torch"}, f"line {line}: {name}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_stay_short(path):
    assert len(path.read_text().splitlines()) < 300


def test_import_registers_what_a_file_may_hold_and_loads_no_text_library():
    printed = run_python("""
        import sys
        import keras_transformer
        print([name for name in ("tensorflow_text", "sentencepiece") if name in sys.modules])
        import keras
        print([name for name in keras.saving.get_custom_objects() if name.startswith("keras_transformer>")])
    """)
    loaded, registered = (ast.literal_eval(line) for line in printed.splitlines())
    assert loaded == []
    expected = {
        *("DecoderLayer", "EncoderLayer", "FeedForward", "MultiHeadAttention", "PositionalEmbedding"),
        *("Decoder", "Encoder", "Transformer"),
        *("Perplexity", "SmoothedCrossentropy", "TokenAccuracy", "WarmupSchedule"),
    }
    assert {f"keras_transformer>{name}" for name in expected} <= set(registered)


def test_import_on_jax_loads_no_tensorflow():
    loaded = run_python(
        """
        import sys
        import keras
        assert "tensorflow" not in sys.modules, "Keras itself"
        import keras_transformer
        print("tensorflow" in sys.modules, keras.config.backend())
        """,
        KERAS_BACKEND="jax",
    )
    assert loaded.strip() == "False jax"


@pytest.mark.parametrize("name", kt.__all__)
def test_every_public_name_can_be_got(name):
    assert getattr(kt, name) is not None
    assert name in dir(kt)


def test_public_names_are_those_of_the_design():
    design = {
        *("scaled_dot_product_attention", "padding_mask", "look_ahead_mask", "combine_masks", "positional_encoding"),
        *("MultiHeadAttention", "PositionalEmbedding", "FeedForward", "EncoderLayer", "DecoderLayer"),
        *("Encoder", "Decoder", "Transformer", "DistributedModel"),
        *("WarmupSchedule", "transformer_optimizer", "SmoothedCrossentropy", "TokenAccuracy", "Perplexity"),
        *("Tokenizer", "ParallelCorpus", "make_dataset", "beam_search", "Translator", "plot_attention"),
    }
    assert design <= set(kt.__all__)
    assert len(set(kt.__all__)) == len(kt.__all__)


@pytest.mark.parametrize(("chosen", "kept"), [({}, True), ({"TF_CPU_ALLOCATOR_USE_BFC": "0"}, False)])
def test_tensorflow_keeps_the_memory_of_tensors_unless_told_otherwise(chosen, kept):
    printed = run_python(
        """
        import resource
        import keras_transformer
        import tensorflow as tf

        tensor = tf.zeros((4096, 4096))  # 64 MB: 16,384 pages
        tf.tanh(tensor)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            tf.tanh(tensor)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        """,
        **chosen,
    )
    assert (int(printed) < 16_384) == kept


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Tokeniser"):
        kt.Tokeniser  # noqa: B018


@pytest.mark.slow
def test_layers_and_models_work_without_tf_text():
    printed = run_python(
        WITHOUT_TF_TEXT
        + textwrap.dedent("""
        import numpy as np
        import keras_transformer as kt

        model = kt.Transformer(29, None, 1, 1, d_model=16, num_heads=2, d_ff=24)
        model.compile(kt.transformer_optimizer(16), loss=kt.SmoothedCrossentropy(), weighted_metrics=[kt.Perplexity()])
        ids = np.full((2, 3), 5)
        model.train_on_batch({"encoder_token_ids": ids, "decoder_token_ids": ids}, ids, np.ones((2, 3)))
        try:
            kt.Tokenizer.train(["one two three"] * 50, vocabulary_size=270)
        except ImportError as error:
            print(error)
        """)
    )
    assert "pip install" in printed
    assert "tensorflow-text" in printed

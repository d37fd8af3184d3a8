"""What an export demands of the servers: only what the lists of their operations have, and no XLA."""

import shutil

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import keras_transformer as kt
from keras_transformer.serving.operation_check import demands_xla, known_servers, unknown_operations

SERVERS = ["2.18", "2.19", "2.20"]


@pytest.fixture(scope="module")
def export(tokenizers, tmp_path_factory):
    """Of a model that has learned nothing: its operations are a trained one's."""
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = kt.Transformer(380, 360, share_embeddings=False, **sizes)
    return kt.Translator(model, *tokenizers, num_beams=2).export(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """A SavedModel whose `TopKV2` is in a function that a function calls."""
    inner = tf.function(lambda x: tf.math.top_k(x, 2).values)
    outer = tf.function(lambda x: inner(x) * 2.0)
    module = tf.Module()
    module.f = tf.function(lambda x: outer(x) + 1.0, input_signature=[tf.TensorSpec([None, 5])])
    directory = tmp_path_factory.mktemp("nested")
    tf.saved_model.save(module, str(directory))
    return directory


@pytest.fixture
def change(nested, tmp_path):
    """`change(edit)`: the nested SavedModel after `edit(meta_graph, its TopKV2 node)`, and where that node is."""

    def change(edit):
        shutil.copytree(nested, tmp_path, dirs_exist_ok=True)
        path = tmp_path / "saved_model.pb"
        saved = SavedModel.FromString(path.read_bytes())
        (meta_graph,) = saved.meta_graphs
        ((node, function),) = [
            (node, function.signature.name)
            for function in meta_graph.graph_def.library.function
            for node in function.node_def
            if node.op == "TopKV2"
        ]
        edit(meta_graph, node)
        path.write_bytes(saved.SerializeToString())
        return tmp_path, f"node {node.name!r} in function {function!r}"

    return change


def default_of(meta_graph, operation, attribute):
    (default,) = [
        attr.default_value
        for op in meta_graph.meta_info_def.stripped_op_list.op
        for attr in op.attr
        if (op.name, attr.name) == (operation, attribute)
    ]
    return default


def test_the_lists_are_those_of_three_servers():
    assert known_servers() == SERVERS


@pytest.mark.parametrize("server", SERVERS)
def test_servers_know_all_that_an_export_uses(export, nested, server):
    assert unknown_operations(export, server) == []
    assert unknown_operations(str(nested), server) == []


def test_another_server_is_refused(export):
    with pytest.raises(ValueError, match=r"must be one of \['2.18', '2.19', '2.20'\]. Received: target_server='2.17'"):
        unknown_operations(export, "2.17")


def test_a_directory_without_a_saved_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="saved_model"):
        unknown_operations(tmp_path, "2.20")


def test_an_unknown_operation_in_a_nested_function_is_named(change):
    def edit(meta_graph, node):
        node.op = "TopKV9"

    directory, place = change(edit)
    assert unknown_operations(directory, "2.20") == [f"TopKV9: an operation that server 2.20 does not have, {place}"]


def test_an_operation_that_one_server_has_and_another_has_not(tmp_path):
    """TensorFlow 2.20 brought it; here it is in the graph itself."""
    module = tf.Module()
    module.f = tf.function(decode_webp, input_signature=[tf.TensorSpec([], tf.string)])
    tf.saved_model.save(module, str(tmp_path))
    assert unknown_operations(tmp_path, "2.20") == []
    (line,) = unknown_operations(tmp_path, "2.19")
    assert line.startswith("DecodeWebP: an operation that server 2.19 does not have, node 'DecodeWebP' in function ")


def decode_webp(contents):
    return tf.raw_ops.DecodeWebP(contents=contents)


def test_an_unknown_attribute_is_named(change):
    def edit(meta_graph, node):
        node.attr["approximate"].b = True

    directory, place = change(edit)
    assert unknown_operations(directory, "2.18") == [
        f"TopKV2.approximate: an attribute that server 2.18 would ignore, {place}"
    ]


@pytest.mark.parametrize(("value", "harmful"), [(False, False), (True, True)])
def test_an_unknown_attribute_matters_where_it_is_not_its_default(change, value, harmful):
    """As if the TensorFlow that made the SavedModel had given `TopKV2` an attribute with the default false."""

    def edit(meta_graph, node):
        (definition,) = [op for op in meta_graph.meta_info_def.stripped_op_list.op if op.name == "TopKV2"]
        definition.attr.add(name="approximate", type="bool").default_value.b = False
        node.attr["approximate"].b = value

    directory, _ = change(edit)
    assert bool(unknown_operations(directory, "2.20")) is harmful


def test_a_new_attribute_of_tensorflow_itself(tmp_path):
    """TensorFlow 2.21 gave `TensorListGetItem` an attribute that no server has; its default is not in the file."""
    module = tf.Module()
    module.f = tf.function(last_of_three, input_signature=[tf.TensorSpec([3, 2])])
    tf.saved_model.save(module, str(tmp_path))
    assert unknown_operations(tmp_path, "2.18") == []
    path = tmp_path / "saved_model.pb"
    saved = SavedModel.FromString(path.read_bytes())
    (meta_graph,) = saved.meta_graphs
    (node,) = [
        node
        for function in meta_graph.graph_def.library.function
        for node in function.node_def
        if node.op == "TensorListGetItem"
    ]
    assert "Tshape" not in node.attr
    node.attr["Tshape"].CopyFrom(default_of(meta_graph, "TensorListGetItem", "Tshape"))
    path.write_bytes(saved.SerializeToString())
    assert unknown_operations(tmp_path, "2.18") == []
    node.attr["Tshape"].type = tf.int64.as_datatype_enum
    path.write_bytes(saved.SerializeToString())
    (line,) = unknown_operations(tmp_path, "2.18")
    assert line.startswith("TensorListGetItem.Tshape: an attribute that server 2.18 would ignore, node ")


def last_of_three(x):
    items = tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[2])
    return tf.raw_ops.TensorListGetItem(input_handle=items, index=2, element_shape=[2], element_dtype=tf.float32)


def test_a_missing_attribute_is_named(change):
    def edit(meta_graph, node):
        del node.attr["T"]
        node.attr.pop("sorted", None)  # has a default: a node may leave it out

    directory, place = change(edit)
    assert unknown_operations(directory, "2.19") == [f"TopKV2.T: an attribute that server 2.19 demands, {place}"]


def test_nothing_in_an_export_demands_xla(export, nested):
    assert demands_xla(export) == []
    assert demands_xla(nested) == []


def test_a_function_that_must_be_compiled_is_named(tmp_path):
    module = tf.Module()
    compiled = tf.function(lambda x: x + 1.0, jit_compile=True)
    module.f = tf.function(lambda x: compiled(x), input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path))
    lines = demands_xla(tmp_path)
    assert any(line.startswith("_XlaMustCompile, function ") for line in lines)
    assert any(line.startswith("_XlaMustCompile, node ") for line in lines)


def test_operations_and_devices_of_xla_are_named(change):
    def edit(meta_graph, node):
        node.op = "XlaSort"
        node.device = "/device:TPU:0"
        node.attr["_tpu_replicate"].s = b"cluster"

    directory, place = change(edit)
    assert demands_xla(directory) == [
        f"_tpu_replicate, {place}",
        f"the operation XlaSort, {place}",
        f"the device /device:TPU:0, {place}",
    ]

"""The export's warm-up file, read with the server's own messages, and every request of it answered (case P5)."""

import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog


def test_every_record_is_a_request_that_runs(export, translator):
    path = export / "assets.extra" / "tf_serving_warmup_requests"
    signatures = tf.saved_model.load(str(export)).signatures
    sizes, texts = set(), {}
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = PredictionLog.FromString(record)
        request = log.predict_log.request
        assert log.WhichOneof("log_type") == "predict_log"
        assert request.model_spec.name == "translator"
        batch = tf.make_ndarray(request.inputs["text"])
        sizes.add(len(batch))
        if len(batch) == 2:
            outputs = signatures[request.model_spec.signature_name](text=tf.constant(batch))
            texts[batch[0].decode()] = outputs["translation"][0].numpy().decode()
    assert sizes == {1, 2, 4, 8, 16, 32}
    assert len(texts) == 2  # the shortest and a long one
    assert list(texts.values()) == translator(list(texts))

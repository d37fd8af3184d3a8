"""One of several workers: trains `Tagger` on the rows that all share, and prints what it ended with.

python worker.py PORTS INDEX [--jit-compile] [--optimizer JSON] [--checkpoints DIR] [--end SIGNAL UPDATE]
    [--timeout SECONDS]
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=lambda text: text.split(","))
    parser.add_argument("index", type=int)
    parser.add_argument("--jit-compile", action="store_true")
    parser.add_argument("--optimizer", type=json.loads, default={}, help="further arguments of SGD, as JSON")
    parser.add_argument("--checkpoints")
    parser.add_argument("--end", type=int, nargs=2, default=(None, None), help="a signal's number, and when it comes")
    parser.add_argument("--timeout", type=float, default=60.0)
    args = parser.parse_args()
    if len(args.ports) > 1:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in args.ports]}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": args.index}})

    import keras
    import tensorflow as tf
    from taggers import Tagger, rows

    import keras_transformer as kt

    strategy = kt.multi_worker_strategy(args.timeout) if len(args.ports) > 1 else tf.distribute.get_strategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = Tagger(dropout=0.0)
        model.compile(
            keras.optimizers.SGD(0.5, momentum=0.5, **args.optimizer),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[kt.TokenAccuracy()],
            jit_compile=args.jit_compile,
        )

    number, update = args.end

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.training_statistics()["updates"] == update:
                os.kill(os.getpid(), number)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.autotune.enabled = False
    train, validation = (
        tf.data.Dataset.from_tensor_slices(rows(count, seed)).batch(8).with_options(options)
        for count, seed in ((77, 0), (25, 2))
    )
    history = model.fit(
        train,
        epochs=2,
        validation_data=validation,
        verbose=0,
        callbacks=[End(), *([kt.Checkpointing(args.checkpoints, every_steps=2)] if args.checkpoints else [])],
    ).history
    ended = {
        "history": history,
        "weights": [weight.tolist() for weight in model.get_weights()],
        "statistics": model.training_statistics(),
        "predicted": model.predict(rows(9)[0], verbose=0).tolist(),
    }
    print("\n" + json.dumps(ended))


if __name__ == "__main__":
    main()

"""Server-side batching by the rules of TensorFlow Serving's BatchingSession, for the stand-in."""

import collections
import dataclasses
import threading
import time
from concurrent.futures import Future

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

NUMBERS = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
DEFAULTS = {"max_batch_size": 1000, "batch_timeout_micros": 0, "max_enqueued_batches": 10, "num_batch_threads": 2}


def read_parameters(text):
    """A BatchingParameters message from its text form, read as strictly as the server does.

    The message is not among those of tensorflow-serving-api; these are its fields.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="batching.proto", package="stand_in", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="BatchingParameters")
    for number, name in enumerate(NUMBERS, start=1):
        message.field.add(
            name=name,
            number=number,
            type=field.TYPE_MESSAGE,
            label=field.LABEL_OPTIONAL,
            type_name=".google.protobuf.Int64Value",
        )
    message.field.add(
        name="thread_pool_name",
        number=5,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_OPTIONAL,
        type_name=".google.protobuf.StringValue",
    )
    message.field.add(name="allowed_batch_sizes", number=6, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    message.field.add(name="pad_variable_length_inputs", number=7, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    parameters = message_factory.GetMessageClass(pool.FindMessageTypeByName("stand_in.BatchingParameters"))()
    text_format.Parse(text, parameters)
    numbers = {
        name: getattr(parameters, name).value if parameters.HasField(name) else DEFAULTS[name] for name in NUMBERS
    }
    sizes = list(parameters.allowed_batch_sizes)
    if sizes and (sizes != sorted(set(sizes)) or sizes[-1] != numbers["max_batch_size"]):
        raise ValueError(f"allowed_batch_sizes must increase and end with max_batch_size. Received: {text!r}")
    return {**numbers, "allowed_batch_sizes": sizes}


@dataclasses.dataclass
class Task:
    """One request, waiting."""

    inputs: dict
    size: int
    deadline: float
    enqueued: float = dataclasses.field(default_factory=time.monotonic)
    future: Future = dataclasses.field(default_factory=Future)


class Batcher:
    """Merges requests of one signature on axis 0, and cuts the answers there again.

    Args:
        run: `run(signature, inputs, timeout)` -> outputs, dictionaries of NumPy arrays.
        parameters: What `read_parameters` gives.
    """

    def __init__(self, run, parameters):
        self.run, self.parameters = run, parameters
        self.queues = collections.defaultdict(collections.deque)  # of each signature its batches, the last one open
        self.changed = threading.Condition()
        self.sizes = []  # rows of every batch that was run: the tasks' own, and with padding
        for _ in range(parameters["num_batch_threads"]):
            threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, signature, inputs, timeout):
        sizes = {len(value) if np.ndim(value) else -1 for value in inputs.values()}
        if len(sizes) != 1 or -1 in sizes:
            raise tf.errors.InvalidArgumentError(
                None, None, "Batching Run() input tensors must have equal 0th-dimension size"
            )
        task = Task(inputs, sizes.pop(), time.monotonic() + timeout)
        limit = self.parameters["max_batch_size"]
        if task.size > limit:
            raise tf.errors.InvalidArgumentError(
                None, None, f"Task size {task.size} is larger than maximum input batch size {limit}"
            )
        with self.changed:
            queue = self.queues[signature]
            if not queue or sum(waiting.size for waiting in queue[-1]) + task.size > limit:
                if len(queue) >= self.parameters["max_enqueued_batches"]:
                    raise tf.errors.UnavailableError(
                        None, None, "The batch scheduling queue to which this task was submitted is full"
                    )
                queue.append([])
            queue[-1].append(task)
            self.changed.notify()
        return task.future.result()

    def _work(self):
        while True:
            with self.changed:
                while not (ready := self._ready()):
                    self.changed.wait(self._until_ready())
                batch = self.queues[ready].popleft()
            try:
                outputs = self._process(ready, batch)
            except BaseException as error:  # the whole batch fails, whoever was at fault
                for task in batch:
                    task.future.set_exception(error)
            else:
                for task, output in zip(batch, outputs, strict=True):
                    task.future.set_result(output)

    def _ages(self):
        now = time.monotonic()
        return {signature: now - queue[0][0].enqueued for signature, queue in self.queues.items() if queue}

    def _ready(self):
        """The signature whose first batch is closed or has waited long enough; of several the one longest there."""
        timeout = self.parameters["batch_timeout_micros"] / 1e6
        ready = {
            signature: age
            for signature, age in self._ages().items()
            if age >= timeout
            or len(self.queues[signature]) > 1
            or sum(task.size for task in self.queues[signature][0]) >= self.parameters["max_batch_size"]
        }
        return max(ready, key=ready.get) if ready else None

    def _until_ready(self):
        ages = self._ages().values()
        return max(0.0, self.parameters["batch_timeout_micros"] / 1e6 - max(ages)) if ages else None

    def _process(self, signature, batch):
        deadline = max(task.deadline for task in batch)
        if deadline <= time.monotonic():
            raise tf.errors.ResourceExhaustedError(None, None, "Run() timeout exceeded while waiting in batching queue")
        rows = sum(task.size for task in batch)
        padded = next((size for size in self.parameters["allowed_batch_sizes"] if size >= rows), rows)
        merged = {}
        for name in batch[0].inputs:
            parts = [task.inputs[name] for task in batch]
            parts += [parts[-1][:1]] * (padded - rows if rows else 0)
            merged[name] = np.concatenate(parts)
        self.sizes.append((rows, padded))
        outputs = self.run(signature, merged, max(0.001, deadline - time.monotonic()))
        edges = np.cumsum([task.size for task in batch])
        for value in outputs.values():
            if not np.ndim(value) or len(value) != (padded if rows else 0):
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                    "input tensors",
                )
        cut = {name: np.split(value, edges)[: len(batch)] for name, value in outputs.items()}
        return [{name: parts[index] for name, parts in cut.items()} for index in range(len(batch))]

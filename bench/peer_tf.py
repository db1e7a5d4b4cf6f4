#!/usr/bin/env python3
"""Speed of TensorFlow on the same work as `tandem benchmark`: prints one JSON object.

    peer_tf.py --mode training -b 32 --threads 2

Keras ResNet-50 with the stride moved to the 3x3 (v1.5) and convolutions without bias, the step compiled
with tf.function; label smoothing 0.1, SGD with momentum, no weight decay (a favour to it).
`time_to_first_step_s` counts from the start of the process, imports included.
"""

import argparse
import json
import os
import resource
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--arch", choices=("resnet50", "resnet101", "resnet152"), default="resnet50")
parser.add_argument("--mode", choices=("training", "inference"), default="training")
parser.add_argument("--precision", choices=("float32", "bf16"), default="float32",
                    help="bf16 is the automatic mixed precision rewrite of the graph")
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--image-size", type=int, default=224)
parser.add_argument("--iters", type=int, default=10)
parser.add_argument("--warmup", type=int, default=2)
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

LAYERS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


def since_start():
    """Seconds since the kernel started this process."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as f:
        return float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def network(keras, arch, size):
    """ResNet v1.5, the reference's topology."""
    layers = keras.layers

    def conv(x, width, kernel, stride=1, relu=True):
        if stride > 1 and kernel > 1:
            x = layers.ZeroPadding2D(kernel // 2)(x)
        x = layers.Conv2D(width, kernel, stride, "valid" if stride > 1 else "same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
        return layers.ReLU()(x) if relu else x

    inputs = keras.Input((size, size, 3))
    x = conv(inputs, 64, 7, 2)
    x = layers.MaxPooling2D(3, 2, "same")(x)
    for stage, blocks in enumerate(LAYERS[arch]):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = conv(x, 4 * width, 1, stride, False) if not block else x
            y = conv(conv(x, width, 1), width, 3, stride)
            x = layers.ReLU()(layers.Add()([conv(y, 4 * width, 1, 1, False), short]))
    return keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


def resident():
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(o):
    import numpy as np
    import tensorflow as tf

    imported = resident()
    keras = tf.keras
    tf.config.threading.set_intra_op_parallelism_threads(o.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)
    if o.precision == "bf16":
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": True})
    net = network(keras, o.arch, o.image_size)
    x = tf.random.normal((o.batch_size, o.image_size, o.image_size, 3))
    y = tf.one_hot(tf.random.uniform((o.batch_size,), 0, 1000, tf.int32), 1000)
    sgd = keras.optimizers.SGD(0.01, momentum=0.875)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, net(x, training=True))
        sgd.apply_gradients(zip(tape.gradient(value, net.trainable_variables), net.trainable_variables))
        return value

    @tf.function
    def infer(x, y):
        return net(x, training=False)[0, 0]

    step = train if o.mode == "training" else infer
    if o.mode == "training":
        sgd.build(net.trainable_variables)

    first, times = None, []
    for i in range(o.warmup + o.iters):
        start = time.perf_counter()
        float(step(x, y))
        if first is None:
            first = since_start()
        if i >= o.warmup:
            times.append(time.perf_counter() - start)
    t = np.array(times)
    print(json.dumps({
        "program": f"tensorflow {tf.__version__}",
        "arch": o.arch, "mode": o.mode, "precision": o.precision, "batch_size": o.batch_size,
        "image_size": o.image_size, "threads": o.threads,
        "images_per_s": {"median": o.batch_size / float(np.median(t)), "min": o.batch_size / float(t.max()),
                         "max": o.batch_size / float(t.min())},
        "latency_ms": {"avg": 1e3 * float(t.mean()), **{f"p{q}": 1e3 * float(np.percentile(t, q))
                                                        for q in (50, 90, 95, 99)}},
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "memory_after_import_bytes": imported,
        "time_to_first_step_s": first,
        "parameters": int(sum(np.prod(v.shape) for v in net.trainable_variables)),
    }))


main(options)

#!/usr/bin/env python3
"""Speed of TensorFlow on the same work as `tandem benchmark`: prints one JSON object.

    peer_tf.py --mode training -b 32 --threads 2

Keras ResNet-50 with the stride moved to the 3x3 (v1.5) and convolutions without bias, the step compiled
with tf.function; label smoothing 0.1, SGD with momentum, no weight decay (a favour to it).  bf16 is the
automatic mixed precision rewrite of the graph.  A frozen graph infers no faster and starts later.
"""

import os

import peer_common as common

LAYERS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}

parser = common.parser(__doc__)
options = common.begin(parser)
if options.arch not in LAYERS:
    parser.error(f"no '{options.arch}' here, only {', '.join(LAYERS)}")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


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


def main(o):
    import numpy as np
    import tensorflow as tf

    imported = common.resident()
    keras = tf.keras
    tf.config.threading.set_intra_op_parallelism_threads(o.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)
    if o.precision == "bf16":
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": True})
    net = network(keras, o.arch, o.image_size)
    x = tf.constant(np.ascontiguousarray(common.random_images(o).transpose(0, 2, 3, 1)))
    y = tf.one_hot(tf.random.uniform((o.batch_size,), 0, 1000, tf.int32), 1000)

    if o.mode == "training":
        sgd = keras.optimizers.SGD(0.01, momentum=0.875)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
        sgd.build(net.trainable_variables)

        @tf.function
        def train(x, y):
            with tf.GradientTape() as tape:
                value = loss(y, net(x, training=True))
            sgd.apply_gradients(zip(tape.gradient(value, net.trainable_variables), net.trainable_variables))
            return value

        def step():
            return float(train(x, y))
    else:
        infer = tf.function(lambda x: net(x, training=False))

        def step():
            return float(infer(x)[0, 0])

    first, times = common.run_steps(o, step)
    common.show_steps(o, f"TensorFlow {tf.__version__}", first, times, memory_after_import_bytes=imported,
                      parameters=int(sum(np.prod(v.shape) for v in net.trainable_variables)))


main(options)

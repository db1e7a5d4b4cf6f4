#!/usr/bin/env python3
"""Tandem's TensorFlow variant against TensorFlow: padding SAME, 1001 outputs, logits, gradients, initial values.

    tfnet.py --tandem build/tandem                                  every check
    tfnet.py --tandem build/tandem --arch resnet50 --size 64        one network

TensorFlow builds the network from its own operations, tf.nn.conv2d and tf.nn.max_pool2d with padding="SAME",
channels last, in float64, and knows nothing of how Tandem pads.  Grouped convolutions are a convolution of each
group, because TensorFlow has no gradient of its own grouped form on CPUs.  Weights and images come from
fill.py; gradients are the momentum after one step, as in networks.py.
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import fill
from command import MOMENTUM, SMOOTHING, Judge, Tandem, l2, off, only, split_state, train_args, worst

BATCH, CLASSES, EPS = 4, 1001, 1e-5
LIMITS = {"logits_eval": 1e-4, "logits_train": 1e-4, "gradients": 1e-3, "statistics": 1e-5}

# trainable elements with the 1001 outputs of this variant
PARAMETERS = {
    "resnet18": 11690025,
    "resnet50": 25559081,
    "resnext101-32x4d": 44179753,
    "se-resnext101-32x4d": 48957465,
}

# (architecture, side of the image, are gradients compared?)
CASES = [
    ("resnet18", 64, True),
    ("resnet50", 64, True),
    ("resnet50", 97, True),
    ("resnet50", 224, False),
    ("resnext101-32x4d", 64, True),
    ("resnext101-32x4d", 97, False),
    ("resnext101-32x4d", 224, False),
    ("se-resnext101-32x4d", 64, True),
]


# --------------------------------------------------------------------------------- TensorFlow


def is_statistic(name):
    return name.endswith(("running_mean", "running_var", "num_batches_tracked"))


class Network:
    """The network that `state` holds the weights of; its shapes say which."""

    def __init__(self, state, dtype=tf.float64):
        self.state, self.dtype = state, dtype
        self.p = {n: tf.Variable(self.turned(n, a), dtype=dtype) for n, a in state.items()
                  if not n.endswith("num_batches_tracked")}
        self.statistics = {}

    @staticmethod
    def turned(name, a):
        """PyTorch's [out, in, rows, columns] and [out, in] as TensorFlow has them."""
        if ".se.fc" in name and a.ndim == 4:
            return a[:, :, 0, 0].T
        return {4: lambda: a.transpose(2, 3, 1, 0), 2: lambda: a.T}.get(a.ndim, lambda: a)()

    def back(self, name, a):
        if ".se.fc" in name and a.ndim == 2:
            return a.T.reshape(self.state[name].shape)
        return {4: lambda: a.transpose(3, 2, 0, 1), 2: lambda: a.T}.get(a.ndim, lambda: a)()

    def conv(self, x, name, stride):
        w = self.p[name + ".weight"]
        groups = x.shape[-1] // w.shape[2]
        parts = zip(tf.split(x, groups, axis=3), tf.split(w, groups, axis=3))
        return tf.concat([tf.nn.conv2d(a, b, stride, "SAME") for a, b in parts], axis=3)

    def norm(self, x, name, training):
        mean, var = self.p[name + ".running_mean"], self.p[name + ".running_var"]
        if training:
            old_mean, old_var = mean, var
            mean, var = tf.nn.moments(x, [0, 1, 2])
            n = float(np.prod(x.shape[:3]))
            self.statistics[name + ".running_mean"] = 0.9 * old_mean + 0.1 * mean
            self.statistics[name + ".running_var"] = 0.9 * old_var + 0.1 * var * n / (n - 1)
        return tf.nn.batch_normalization(x, mean, var, self.p[name + ".bias"], self.p[name + ".weight"], EPS)

    def gate(self, x, name):
        s = tf.reduce_mean(x, [1, 2])
        s = tf.nn.relu(s @ self.p[name + ".fc1.weight"] + self.p[name + ".fc1.bias"])
        s = tf.sigmoid(s @ self.p[name + ".fc2.weight"] + self.p[name + ".fc2.bias"])
        return x * s[:, None, None, :]

    def block(self, x, at, stride, training):
        is_basic = at + "conv3.weight" not in self.p
        y = self.norm(self.conv(x, at + "conv1", stride if is_basic else 1), at + "bn1", training)
        y = self.norm(self.conv(tf.nn.relu(y), at + "conv2", 1 if is_basic else stride), at + "bn2", training)
        if not is_basic:
            y = self.norm(self.conv(tf.nn.relu(y), at + "conv3", 1), at + "bn3", training)
        if at + "se.fc1.weight" in self.p:
            y = self.gate(y, at + "se")
        if at + "downsample.0.weight" in self.p:
            x = self.norm(self.conv(x, at + "downsample.0", stride), at + "downsample.1", training)
        return tf.nn.relu(y + x)

    def logits(self, images, training):
        x = tf.constant(images.transpose(0, 2, 3, 1), dtype=self.dtype)
        x = tf.nn.relu(self.norm(self.conv(x, "conv1", 2), "bn1", training))
        x = tf.nn.max_pool2d(x, 3, 2, "SAME")
        for stage in range(1, 5):
            blocks = 1 + max(int(n.split(".")[1]) for n in self.p if n.startswith(f"layer{stage}."))
            for i in range(blocks):
                x = self.block(x, f"layer{stage}.{i}.", 2 if stage > 1 and i == 0 else 1, training)
        return tf.reduce_mean(x, [1, 2]) @ self.p["fc.weight"] + self.p["fc.bias"]

    def step(self, images, labels):
        """Logits in training, gradients and statistics."""
        names = [n for n in self.p if not is_statistic(n)]
        with tf.GradientTape() as tape:
            logits = self.logits(images, True)
            wanted = tf.one_hot(labels, CLASSES, dtype=self.dtype) * (1 - SMOOTHING) + SMOOTHING / CLASSES
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(wanted, logits))
        gradients = tape.gradient(loss, [self.p[n] for n in names])
        return {
            "logits_train": logits.numpy(),
            "gradients": {n: self.back(n, g.numpy()) for n, g in zip(names, gradients)},
            "statistics": {n: s.numpy() for n, s in self.statistics.items()},
        }


def fused_norm_says(judge):
    """The fused kernel of TensorFlow 1's networks gives the unbiased variance, as step() assumes."""
    x = fill.images("fused.", 2, 4).transpose(0, 2, 3, 1)
    _, _, var = tf.compat.v1.nn.fused_batch_norm(x, [1.0] * 3, [0.0] * 3, epsilon=EPS, is_training=True)[:3]
    judge.say("fused batch norm", "unbiased variance", off(var.numpy(), x.reshape(-1, 3).var(0, ddof=1)), "", 1e-6)


# --------------------------------------------------------------------------------- checks


def shapes_of(judge, tandem, arch):
    """What `init` makes without a word about classes: names and shapes."""
    tandem.run("init", "--overwrite", "--arch", arch, "--variant", "tensorflow", "-o", tandem.file("init.safetensors"))
    made = load_file(tandem.file("init.safetensors"))
    count = sum(a.size for n, a in made.items() if not is_statistic(n))
    judge.fact(arch, "parameters", count == PARAMETERS[arch], f"{count}")
    return {n: a.shape for n, a in made.items()}


def check_init(judge, tandem, arch, conv_init):
    """Deviations and cuts of the initial values; TensorFlow draws the same distributions for comparison."""
    args = ["--conv-init", conv_init] if conv_init else []
    tandem.run("init", "--overwrite", "--arch", arch, "--variant", "tensorflow", *args, "-o", tandem.file("init.safetensors"))
    made, worst_off = tandem.out("init.safetensors"), (0.0, "")
    for n, a in made.items():
        if not n.endswith(".weight") or a.ndim < 2 or a.size < 2000:
            continue
        turned = Network.turned(n, a)
        grouped = n.endswith("conv2.weight") and a.shape[0] != a.shape[1]
        mode = conv_init or "fan_out"
        theirs = (tf.keras.initializers.GlorotUniform(1) if grouped else
                  tf.keras.initializers.VarianceScaling(1.0 if ".se." in n else 2.0,
                                                        "fan_in" if ".se." in n else mode, "truncated_normal", 1))
        want = theirs(turned.shape).numpy()
        slack = 6 / np.sqrt(a.size)  # six deviations of what is estimated
        for measure in (np.std, lambda v: np.abs(v).max()):
            worst_off = max(worst_off, (abs(measure(a) / measure(want) - 1) / max(slack, 0.02), n))
        worst_off = max(worst_off, (abs(a.mean()) / a.std() / slack, n))
    judge.say(f"{arch} {conv_init or 'default'}", "initial values", worst_off[0], worst_off[1], 1.0)
    judge.fact(arch, "biases are 0", all((a == 0).all() for n, a in made.items() if n.endswith("bias")))


def check_size(judge, tandem, arch, size, shapes, with_gradients, prefix):
    case = f"{arch}-k{CLASSES}-s{size}"
    batch = BATCH if size < 224 else 2
    state = fill.state(prefix, shapes, "margin", arch == "resnet18")
    images = fill.images(prefix, batch, size)
    labels = fill.labels(prefix, batch, CLASSES - 1)
    save_file(state, tandem.file("start.safetensors"))
    tandem.data("one.safetensors", images, labels)
    common = ["--data-backend", "tensors", "--arch", arch, "--variant", "tensorflow", "--image-size", str(size),
              "-b", str(batch)]
    weights = ["--pretrained-weights", tandem.file("start.safetensors")]

    tandem.run("evaluate", tandem.file("one.safetensors"), *common, *weights,
               "--logits", tandem.file("logits.safetensors"))
    got = only(tandem.out("logits.safetensors"), "logits")
    net = Network(state)
    judge.say(case, "logits_eval", off(got, net.logits(images, False).numpy()), "", LIMITS["logits_eval"])
    if not with_gradients:
        return
    names = [n for n in shapes if not is_statistic(n)]
    tandem.run("train", tandem.file("one.safetensors"), *common, *weights, *train_args(1, MOMENTUM, 0.0),
               "--train-logits", tandem.file("train.safetensors"), "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    want = net.step(images, labels)
    judge.say(case, "logits_train", off(only(tandem.out("train.safetensors"), "logits"), want["logits_train"]), "",
              LIMITS["logits_train"])
    gradients = split_state(end, names)
    judge.say(case, "gradients", *worst(gradients, want["gradients"]), LIMITS["gradients"])
    judge.say(case, "gradients, all", *l2(gradients, want["gradients"]), LIMITS["gradients"])
    judge.say(case, "statistics", *worst(end, want["statistics"]), LIMITS["statistics"])


def check_file(judge, tandem, arch, size):
    """A file of the variant says so itself: evaluated without --arch and --variant."""
    images, labels = fill.images("file.", BATCH, size), fill.labels("file.", BATCH, CLASSES - 1)
    tandem.data("one.safetensors", images, labels)
    tandem.run("init", "--overwrite", "--arch", arch, "--variant", "tensorflow", "--image-size", str(size), "--seed", "3",
               "-o", tandem.file("file.safetensors"))
    tandem.run("evaluate", tandem.file("one.safetensors"), "--data-backend", "tensors", "-b", str(BATCH),
               "--weights", tandem.file("file.safetensors"), "--logits", tandem.file("logits.safetensors"))
    want = Network(load_file(tandem.file("file.safetensors"))).logits(images, False).numpy()
    judge.say(f"{arch}-s{size}", "weights alone", off(only(tandem.out("logits.safetensors"), "logits"), want), "", 1e-4)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tandem", required=True)
    p.add_argument("--arch", choices=list(PARAMETERS))
    p.add_argument("--size", type=int)
    p.add_argument("--prefix", default="margin0.")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        tandem = Tandem(o.tandem, folder, o.threads)
        if not o.arch:
            fused_norm_says(judge)
            check_file(judge, tandem, "resnet18", 64)
            check_init(judge, tandem, "se-resnext101-32x4d", None)
            check_init(judge, tandem, "resnet50", "fan_in")
        shapes = {}
        for arch, size, with_gradients in CASES:
            if o.arch in (None, arch) and o.size in (None, size):
                if arch not in shapes:
                    shapes[arch] = shapes_of(judge, tandem, arch)
                check_size(judge, tandem, arch, size, shapes[arch], with_gradients, o.prefix)
    print("all passed" if not judge.failed else f"{judge.failed} failed")
    raise SystemExit(judge.failed != 0)


if __name__ == "__main__":
    main()

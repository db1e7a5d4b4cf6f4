"""Weights, images and labels from a formula, so that no file of weights has to be stored.

Every number of a tensor depends on the tensor's name and the element's index only: a 64-bit FNV-1a of
the name seeds splitmix64, the upper 24 bits of each output are the element.  Three ways of turning these
uniform numbers into a network:

  plain   an ordinary random initialisation.  Badly conditioned in float32: ReLU inputs lie within
          rounding of zero, so two correct programs take different branches.
  margin  batch-norm parameters chosen so that most ReLU inputs keep three standard deviations from
          zero, one channel in 64 stays mixed, and residual branches end small.  Float32 is then good
          to 1e-6 forwards and 1e-4 in every gradient.
  calm    of ssd320: batch-norm parameters with which no input of a relu6 comes near 0 or 6.

A prefix in front of the names picks one of arbitrarily many draws.
"""

import re

import numpy as np


def uniform(name, n):
    """`n` numbers in [0, 1), float64, each a multiple of 2^-24."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / 2.0**24


def ends_branch(name, basic):
    """Whether a batch-norm tensor is the last of a residual branch or of a shortcut."""
    last = "bn2" if basic else "bn3"
    return ".downsample.1." in name or f".{last}." in name


def tensor(prefix, name, shape, kind="margin", basic=False):
    """One weight or statistic, float32; `num_batches_tracked` is an int64 zero."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    n = int(np.prod(shape, dtype=np.int64))
    u = uniform(prefix + name, n)
    norm = re.search(r"(^|\.)bn\d?\.|\.downsample\.1\.", name)
    channel = np.arange(n)
    if name.endswith("running_mean"):
        v = 0.2 * (2 * u - 1)
    elif name.endswith("running_var"):
        v = 0.5 + u
    elif not norm and name.endswith("bias"):
        v = 0.2 * (2 * u - 1) - (4.6 if kind == "calm" and name == "heads.class.bias" else 0)
    elif not norm:
        v = (2 * u - 1) * np.sqrt(6.0 / (n / shape[0])) * (0.25 if kind == "calm" and name.startswith("heads.") else 1)
    elif kind == "calm":
        v = 0.15 + 0.3 * u if name.endswith("weight") else 3 + 0.2 * (2 * u - 1)
    elif kind == "plain":
        v = 0.5 + u if name.endswith("weight") else 0.2 * (2 * u - 1)
    elif ends_branch(name, basic):
        if name.endswith("weight"):
            v = 0.05 * (0.9 + 0.2 * u)
        else:
            first = re.search(r"layer\d\.0\.", name)
            b = np.where(channel % 64 == 9, 0.0, 2.5 if first else 0.7)
            v = 0.05 * (b + 0.2 * (2 * u - 1))
    elif name.endswith("weight"):
        v = 0.9 + 0.2 * u
    else:
        v = np.where(channel % 64 == 5, 2 * u - 1,
                     np.where(u < 0.25, -1.0, 1.0) * (3.5 + 0.5 * u))
    return v.astype(np.float32).reshape(shape)


def state(prefix, shapes, kind="margin", basic=False):
    """All tensors of a network: `shapes` maps canonical names to shapes."""
    return {name: tensor(prefix, name, tuple(shape), kind, basic) for name, shape in shapes.items()}


def images(prefix, batch, size, name="images"):
    """float32 [batch, 3, size, size] in [-2, 2)."""
    n = batch * 3 * size * size
    return (2 * (2 * uniform(prefix + name, n) - 1)).astype(np.float32).reshape(batch, 3, size, size)


def labels(prefix, batch, classes, name="labels"):
    """int64 [batch]."""
    return np.floor(uniform(prefix + name, batch) * classes).astype(np.int64)

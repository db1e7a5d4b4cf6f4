"""What oracles share that drive the command: running it, its files, measures and verdicts.  Without PyTorch, because
TensorFlow and PyTorch cannot be loaded into one process.
"""

import os
import subprocess

import numpy as np
from safetensors.numpy import load_file, save_file

# Five steps: two batches of four are an epoch, so the learning rate is 1/4, 1/4, 1/2, 1/2, 3/4 of LR.
STEPS, ROWS, EPOCHS, WARMUP = 5, 8, 8, 4
LR, MOMENTUM, DECAY, SMOOTHING = 0.05, 0.875, 1.0 / 32768, 0.1


# --------------------------------------------------------------------------------- measures


def off(a, b):
    """Largest difference over the largest entry of `b`, the trusted one."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        a = a.reshape(b.shape)
    top = np.abs(b).max()
    worst = np.abs(a - b).max()
    if not np.isfinite(worst):
        return float("inf")
    return float(worst / top) if top > 0 else float(worst)


def worst(got, want):
    """(error, name) of the worst tensor; every name of `want` must be there."""
    return max((off(got[name], want[name]), name) for name in want)


def l2(got, want):
    """(error, '') over all tensors taken as one vector."""
    num = sum(float(((np.asarray(got[n], np.float64).reshape(want[n].shape) - want[n]) ** 2).sum())
              for n in want)
    den = sum(float((want[n] ** 2).sum()) for n in want)
    return (float(np.sqrt(num / den)), "L2 over all")


# --------------------------------------------------------------------------------- Tandem


class Tandem:
    """The command, run in a scratch folder."""

    def __init__(self, path, folder, threads):
        self.path, self.folder = os.path.abspath(path), folder
        self.env = dict(os.environ, OMP_NUM_THREADS=str(threads))

    def file(self, name):
        return os.path.join(self.folder, name)

    def run(self, *args):
        done = subprocess.run([self.path, *args], cwd=self.folder, env=self.env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            tail = "\n".join(done.stderr.splitlines()[-5:])
            raise RuntimeError(f"'tandem {' '.join(args)}' ended with {done.returncode}: {tail}")
        return done.stdout

    def data(self, name, images, labels):
        save_file({"images": images, "labels": labels}, self.file(name))
        return self.file(name)

    def out(self, name):
        """A result file: a dictionary of arrays.  It is removed, so that a later run cannot reuse it."""
        tensors = load_file(self.file(name))
        os.remove(self.file(name))
        return tensors


def only(tensors, name):
    return tensors[name] if name in tensors else next(iter(tensors.values()))


def split_state(tensors, names):
    """Weights and momentum of a `--final-state` file, by parameter name."""
    momentum = {}
    for n in names:
        found = [k for k in tensors if k != n and "momentum" in k and n in
                 (k.removeprefix("momentum."), k.removesuffix(".momentum"), k.removesuffix(".momentum_buffer"),
                  k.removeprefix("optimizer.momentum."), k.removeprefix("momentum/"))]
        if len(found) != 1:
            raise KeyError(f"no momentum of '{n}' in the final state, only {sorted(tensors)[:8]} ...")
        momentum[n] = tensors[found[0]]
    return momentum


def train_args(iters, momentum, decay, lr=LR):
    return ["--training-only", "--no-checkpoints", "--run-iters", str(iters), "--epochs", str(EPOCHS),
            "--lr", repr(lr), "--lr-schedule", "linear", "--warmup", str(WARMUP), "--momentum", repr(momentum),
            "--wd", repr(decay), "--label-smoothing", repr(SMOOTHING), "--final-state"]


# --------------------------------------------------------------------------------- verdicts


class Judge:
    """Prints one line a check and remembers whether all passed."""

    def __init__(self):
        self.failed = 0

    def say(self, case, check, error, where, limit, peer=None):
        ok = error <= limit
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {case:28s} {check:22s} {error:8.1e}  limit {limit:7.0e}  "
              f"{'' if peer is None else f'torch {peer:8.1e}'}  {where}", flush=True)

    def fact(self, case, check, ok, note=""):
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {case:28s} {check:22s} {note}", flush=True)

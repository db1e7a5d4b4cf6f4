#!/usr/bin/env python3
"""Makes tests/golden/ops: every operation's values and gradients from PyTorch in float64.

    ops.py [--out tests/golden/ops]
    ops.py --check      make them again in memory and compare with the files that are there

One safetensors file an operation, and index.json that says what is in them; the format is described in
tests/golden/ops/README.md.  Inputs come from the formula of fill.py, so the files are the same every time.
"""

import argparse
import json
import os
import platform
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

import fill

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "golden", "ops")
EPS = 1e-5


class Maker:
    """Collects cases; each one is an operation applied once."""

    def __init__(self):
        self.cases, self.files = [], {}

    def draw(self, case, what, shape, lo=-1.0, hi=1.0):
        """float64 tensor whose values are exact in float32."""
        n = int(np.prod(shape, dtype=np.int64))
        v = (lo + (hi - lo) * fill.uniform(f"ops.{case}.{what}", n)).astype(np.float32)
        return torch.from_numpy(v.astype(np.float64).reshape(shape))

    def add(self, case, op, attrs, function, inputs, fixed=(), extra=None, plain=None):
        """Run `function(*inputs)` and its gradient.

        inputs   name -> tensor, in the operation's order; `fixed` names those without a gradient
        extra    name -> tensor: further expected results, no gradient flows into them
        plain    name -> array stored among the inputs but not given to the function
        """
        leaves = {n: t.clone().requires_grad_(n not in fixed) for n, t in inputs.items()}
        y = function(*leaves.values())
        dy = self.draw(case, "dy", tuple(y.shape)) if y.dim() else torch.tensor(0.75, dtype=torch.float64)
        y.backward(dy)
        stored = self.files.setdefault(f"{op}.safetensors", {})
        entry = {"name": case, "op": op, "attrs": attrs, "file": f"{op}.safetensors",
                 "inputs": {}, "outputs": {}, "grads": {}}

        def put(group, name, array):
            key = f"{case}.{name}"
            assert key not in stored, key
            stored[key] = np.ascontiguousarray(array)
            entry[group][name] = key

        for name, t in inputs.items():
            put("inputs", name, t.numpy().astype(np.float32))
            assert (stored[f"{case}.{name}"].astype(np.float64) == t.numpy()).all(), f"{case}.{name} not exact"
        for name, a in (plain or {}).items():
            put("inputs", name, a)
        put("inputs", "dy", dy.numpy().astype(np.float32))
        put("outputs", "y", y.detach().numpy())
        for name, t in (extra(y) if callable(extra) else extra or {}).items():
            put("outputs", name, t.detach().numpy())
        for name, t in leaves.items():
            if t.requires_grad:
                put("grads", f"d{name}", t.grad.numpy())
        self.cases.append(entry)


def conv2d(m):
    rows = [
        ("conv1x1", (2, 8, 6, 5), (12, 8, 1, 1), 1, 0, 1, 1),
        ("conv1x1_stride2", (2, 6, 7, 6), (5, 6, 1, 1), 2, 0, 1, 1),
        ("conv3x3", (2, 5, 6, 7), (4, 5, 3, 3), 1, 1, 1, 1),
        ("conv3x3_stride2_odd", (2, 4, 7, 9), (6, 4, 3, 3), 2, 1, 1, 1),
        ("conv3x3_stride2_even", (2, 4, 8, 6), (6, 4, 3, 3), 2, 1, 1, 1),
        ("conv3x3_unpadded", (1, 3, 5, 5), (2, 3, 3, 3), 1, 0, 1, 1),
        ("conv3x3_dilated", (2, 3, 8, 9), (4, 3, 3, 3), 1, 2, 2, 1),
        ("conv7x7_stem", (2, 3, 15, 13), (4, 3, 7, 7), 2, 3, 1, 1),
        ("conv5x5", (1, 2, 6, 6), (3, 2, 5, 5), 1, 2, 1, 1),
        ("conv3x3_groups", (2, 16, 5, 6), (16, 4, 3, 3), 1, 1, 1, 4),
        ("conv3x3_groups_stride2", (2, 16, 6, 7), (32, 4, 3, 3), 2, 1, 1, 4),
        ("conv3x3_depthwise", (2, 6, 5, 5), (12, 1, 3, 3), 1, 1, 1, 6),
        ("conv3x2_everything", (2, 4, 9, 8), (6, 2, 3, 2), 2, 1, 2, 2),
        ("conv_covers_all", (2, 3, 4, 4), (5, 3, 4, 4), 1, 0, 1, 1),
    ]
    for name, x, w, stride, pad, dilation, groups in rows:
        m.add(name, "conv2d", {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups},
              lambda a, b, s=stride, p=pad, d=dilation, g=groups: F.conv2d(a, b, None, s, p, d, g),
              {"x": m.draw(name, "x", x), "w": m.draw(name, "w", w)})


def linear(m):
    for name, n, c, k in (("linear", 4, 7, 5), ("linear_one_row", 1, 16, 3), ("linear_one_class", 3, 5, 1)):
        m.add(name, "linear", {}, F.linear,
              {"x": m.draw(name, "x", (n, c)), "w": m.draw(name, "w", (k, c)), "b": m.draw(name, "b", (k,))})


def batch_norm(m):
    rows = [
        ("norm", (4, 5, 3, 4), -1.0, 1.0),
        ("norm_shifted", (3, 4, 4, 4), 9.0, 11.0),
        ("norm_few_values", (2, 3, 1, 2), -1.0, 1.0),
        ("norm_small_variance", (4, 3, 3, 3), -1e-3, 1e-3),
    ]
    for name, shape, lo, hi in rows:
        c = shape[1]
        x = m.draw(name, "x", shape, lo, hi)
        old_mean, old_var = m.draw(name, "running_mean", (c,)), m.draw(name, "running_var", (c,), 0.5, 1.5)
        mean, var = old_mean.clone(), old_var.clone()
        F.batch_norm(x, mean, var, training=True, momentum=0.1, eps=EPS)
        m.add(name, "batch_norm", {"eps": EPS, "momentum": 0.1},
              lambda a, g, b: F.batch_norm(a, None, None, g, b, training=True, eps=EPS),
              {"x": x, "gamma": m.draw(name, "gamma", (c,), 0.5, 1.5), "beta": m.draw(name, "beta", (c,))},
              extra={"mean": x.mean((0, 2, 3)), "var": x.var((0, 2, 3), unbiased=False),
                     "running_mean": mean, "running_var": var},
              plain={"running_mean_before": old_mean.numpy().astype(np.float32),
                     "running_var_before": old_var.numpy().astype(np.float32)})
    name = "norm_infer"
    m.add(name, "batch_norm_infer", {"eps": EPS},
          lambda x, g, b, mean, var: F.batch_norm(x, mean, var, g, b, training=False, eps=EPS),
          {"x": m.draw(name, "x", (3, 5, 4, 3)), "gamma": m.draw(name, "gamma", (5,), 0.5, 1.5),
           "beta": m.draw(name, "beta", (5,)), "mean": m.draw(name, "mean", (5,)),
           "var": m.draw(name, "var", (5,), 0.01, 2.0)}, fixed=("mean", "var"))


def activations(m):
    for op, f, lo, hi in (("relu", F.relu, -1, 1), ("relu6", F.relu6, -4, 10), ("sigmoid", torch.sigmoid, -8, 8)):
        m.add(op, op, {}, f, {"x": m.draw(op, "x", (2, 3, 4, 5), lo, hi)})
    rows = (("leaky_relu", {"slope": 0.2}, lambda x: F.leaky_relu(x, 0.2), -4, 4), ("elu", {"alpha": 1.5}, lambda x: F.elu(x, 1.5), -4, 4),
            ("clip", {"min": -1, "max": 2}, lambda x: x.clamp(-1, 2), -4, 4), ("hardsigmoid", {}, lambda x: (x / 6 + 0.5).clamp(0, 1), -5, 5),
            ("silu", {}, F.silu, -8, 8), ("hardswish", {}, F.hardswish, -5, 5), ("gelu", {}, F.gelu, -5, 5),
            ("gelu_tanh", {}, lambda x: F.gelu(x, approximate="tanh"), -5, 5), ("tanh", {}, torch.tanh, -5, 5),
            ("exp", {}, torch.exp, -4, 4), ("log", {}, torch.log, 0.01, 9), ("sqrt", {}, torch.sqrt, 0.01, 9),
            ("reciprocal", {}, torch.reciprocal, -3, -0.2), ("pow", {"exponent": 3}, lambda x: x ** 3, -3, 3),
            ("softplus", {}, F.softplus, -9, 9), ("mish", {}, F.mish, -8, 8), ("abs", {}, torch.abs, -3, 3), ("erf", {}, torch.erf, -4, 4))
    for op, attrs, f, lo, hi in rows:
        m.add(op, op, attrs, f, {"x": m.draw(op, "x", (2, 3, 4, 5), lo, hi)})
    m.add("pow_half", "pow", {"exponent": 0.5}, lambda x: x ** 0.5, {"x": m.draw("pow_half", "x", (3, 7), 0.01, 9)})
    m.add("hardsigmoid_line", "hardsigmoid", {"alpha": 0.25, "beta": 0.5}, lambda x: (0.25 * x + 0.5).clamp(0, 1),
          {"x": m.draw("hardsigmoid_line", "x", (3, 7), -4, 4)})
    edge = torch.tensor([[-1.0, -0.0, 0.0, 2.0**-20, -(2.0**-20), 3.0, 6.0, 6.0 + 2.0**-18, 7.0, 100.0, -100.0]],
                        dtype=torch.float64).float().double()
    for op, f in (("relu", F.relu), ("relu6", F.relu6), ("sigmoid", torch.sigmoid)):
        m.add(f"{op}_edges", op, {}, f, {"x": edge})


def pools(m):
    for name, shape, k, s, p in (("max_stem_even", (2, 3, 8, 6), 3, 2, 1), ("max_stem_odd", (2, 3, 9, 7), 3, 2, 1),
                                 ("max_2", (1, 4, 6, 8), 2, 2, 0), ("max_dense", (1, 2, 5, 5), 3, 1, 1),
                                 ("max_negative", (1, 2, 5, 4), 3, 2, 1)):
        hi = -0.5 if name == "max_negative" else 1.0
        m.add(name, "max_pool2d", {"kernel": k, "stride": s, "pad": p},
              lambda x, k=k, s=s, p=p: F.max_pool2d(x, k, s, p), {"x": m.draw(name, "x", shape, -1.0, hi)})
    for name, shape, k, s, p, inc in (("average_2", (2, 3, 6, 8), 2, 2, 0, True),
                                      ("average_padded", (2, 3, 7, 5), 3, 2, 1, True),
                                      ("average_real_only", (2, 3, 7, 5), 3, 2, 1, False),
                                      ("average_dense", (1, 2, 5, 5), 3, 1, 1, False)):
        m.add(name, "avg_pool2d", {"kernel": k, "stride": s, "pad": p, "count_include_pad": inc},
              lambda x, k=k, s=s, p=p, i=inc: F.avg_pool2d(x, k, s, p, count_include_pad=i),
              {"x": m.draw(name, "x", shape)})
    for name, shape in (("global_average", (2, 5, 7, 7)), ("global_average_one", (3, 4, 1, 1)),
                        ("global_average_flat", (1, 3, 2, 9))):
        m.add(name, "global_avg_pool", {}, lambda x: x.mean((2, 3), keepdim=True), {"x": m.draw(name, "x", shape)})


def arithmetic(m):
    m.add("add", "add", {}, torch.add, {"a": m.draw("add", "a", (2, 3, 4, 5)), "b": m.draw("add", "b", (2, 3, 4, 5))})
    for name, b in (("mul_same", (2, 3, 4, 5)), ("mul_gate", (2, 3, 1, 1)), ("mul_channel", (1, 3, 1, 1)),
                    ("mul_sample", (2, 1, 1, 1))):
        m.add(name, "mul", {}, torch.mul, {"a": m.draw(name, "a", (2, 3, 4, 5)), "b": m.draw(name, "b", b)})
    for op, f, lo in (("sub", torch.sub, -1), ("div", torch.div, 0.5), ("max", torch.maximum, -1), ("min", torch.minimum, -1)):
        for name, b in ((f"{op}_same", (2, 3, 4, 5)), (f"{op}_channel", (3, 1, 1))):
            m.add(name, op, {}, f, {"a": m.draw(name, "a", (2, 3, 4, 5)), "b": m.draw(name, "b", b, lo, 2)})
    tie = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    for op, f in (("max", torch.maximum), ("min", torch.minimum)):
        m.add(f"{op}_tie", op, {}, f, {"a": tie, "b": torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)})


def shapes(m):
    for name, axis, parts in (("concat_channels", 1, [(2, 3, 4, 2), (2, 1, 4, 2), (2, 4, 4, 2)]),
                              ("concat_batch", 0, [(1, 3, 2, 2), (3, 3, 2, 2)]),
                              ("concat_width", 3, [(2, 3, 2, 4), (2, 3, 2, 1)]),
                              ("concat_rank2", 1, [(3, 4), (3, 2)])):
        m.add(name, "concat", {"axis": axis}, lambda *x, a=axis: torch.cat(x, a),
              {f"x{i}": m.draw(name, f"x{i}", s) for i, s in enumerate(parts)})
    for name, scale in (("nearest_2", 2), ("nearest_3", 3)):
        m.add(name, "resize_nearest", {"scale": scale},
              lambda x, s=scale: F.interpolate(x, scale_factor=s, mode="nearest"), {"x": m.draw(name, "x", (2, 3, 3, 4))})
    for op, f in (("sum", torch.sum), ("mean", torch.mean)):
        m.add(op, op, {}, f, {"x": m.draw(op, "x", (2, 3, 4, 5))})
    for name, mode, size, corners in (("linear_up", "bilinear", (9, 10), False), ("linear_down", "bilinear", (3, 2), False),
                                      ("linear_corners", "bilinear", (7, 9), True), ("cubic_up", "bicubic", (8, 7), False),
                                      ("cubic_corners", "bicubic", (5, 11), True)):
        m.add(name, "resize", {"height": size[0], "width": size[1], "mode": {"bilinear": "linear", "bicubic": "cubic"}[mode],
                               "coordinates": "align_corners" if corners else "half_pixel"},
              lambda x, s=size, k=mode, c=corners: F.interpolate(x, s, mode=k, align_corners=c), {"x": m.draw(name, "x", (2, 8, 4, 5))})
    for name, axis, mode, before, after in (("pad_constant", 2, "constant", 2, 1), ("pad_reflect", 3, "reflect", 3, 2),
                                            ("pad_edge", 3, "replicate", 4, 1), ("pad_wrap", 2, "circular", 3, 4)):
        both = (before, after, 0, 0) if axis == 3 else (0, 0, before, after)
        m.add(name, "pad", {"axis": axis, "before": before, "after": after, "mode": {"replicate": "edge", "circular": "wrap"}.get(mode, mode)},
              lambda x, p=both, k=mode: F.pad(x, p, k), {"x": m.draw(name, "x", (2, 3, 4, 5))})


def transposed(m):
    for name, x, w, stride, pad, extra, dilation, groups in (
            ("transposed", (2, 3, 4, 5), (3, 4, 3, 3), 1, 0, 0, 1, 1), ("transposed_2", (2, 8, 5, 4), (8, 6, 2, 2), 2, 0, 0, 1, 1),
            ("transposed_odd", (2, 8, 4, 5), (8, 8, 3, 3), 2, 1, 1, 1, 1), ("transposed_groups", (1, 8, 3, 4), (8, 2, 4, 3), 2, 1, 0, 1, 4),
            ("transposed_dilated", (1, 4, 5, 5), (4, 4, 3, 3), 1, 2, 0, 2, 1), ("transposed_depthwise", (2, 16, 4, 4), (16, 1, 3, 3), 2, 1, 0, 1, 16)):
        m.add(name, "conv_transpose2d", {"stride": stride, "pad": pad, "output_pad": extra, "dilation": dilation, "groups": groups},
              lambda a, b, s=stride, p=pad, e=extra, d=dilation, g=groups: F.conv_transpose2d(a, b, None, s, p, e, g, d),
              {"x": m.draw(name, "x", x), "w": m.draw(name, "w", w)})


def group_norm(m):
    for name, shape, groups, eps in (("groups", (2, 6, 3, 4), 3, 1e-5), ("group_one", (3, 4, 5, 5), 1, 1e-3),
                                     ("instances", (2, 5, 4, 3), 5, 1e-5), ("groups_rank3", (2, 8, 5), 2, 1e-5)):
        m.add(name, "group_norm", {"groups": groups, "eps": eps}, lambda x, g, b, k=groups, e=eps: F.group_norm(x, k, g, b, e),
              {"x": m.draw(name, "x", shape), "gamma": m.draw(name, "gamma", shape[1:2], 0.5, 1.5), "beta": m.draw(name, "beta", shape[1:2])})


def squeeze_excite(x, w1, b1, w2, b2, hidden=F.relu, gate=torch.sigmoid):
    s = F.linear(hidden(F.linear(x.mean((2, 3)), w1, b1)), w2, b2)
    return x * gate(s)[:, :, None, None]


def away_from_zero(z, y):
    """z, so that y + z is at least 1/8 from zero: then no rounding turns a ReLU."""
    return (z + torch.where(y + z >= 0, 0.125, -0.125)).float().double()


def gates(m):
    for name, shape, of_channels, relu, by in (("gated", (2, 6, 5, 4), False, False, 1.0), ("gated_relu", (2, 16, 4, 5), False, True, 1.0),
                                               ("gated_relu_odd", (3, 5, 3, 7), False, True, 1.0), ("gated_mean", (2, 8, 4, 4), True, False, 0.0625),
                                               ("gated_mean_relu", (3, 7, 3, 5), True, True, 1.0)):
        x, gate = m.draw(name, "x", shape), m.draw(name, "gate", shape[:2], 0, 1)
        z = m.draw(name, "z", shape[:2] if of_channels else shape)
        if not of_channels:
            z = away_from_zero(z, x * gate[:, :, None, None])

        def gated(x, gate, z, relu=relu, by=by):
            y = x * gate[:, :, None, None] + by * (z[:, :, None, None] if z.dim() == 2 else z)
            return F.relu(y) if relu else y

        m.add(name, "gated_add", {"relu": relu, "by": by}, gated, {"x": x, "gate": gate, "z": z})

    functions = {"relu": F.relu, "silu": F.silu, "sigmoid": torch.sigmoid, "hardsigmoid": lambda s: (s / 6 + 0.5).clamp(0, 1)}
    for op, name, shape, d, hidden, gate in (("squeeze_excite", "excite", (2, 6, 5, 4), 3, "relu", "sigmoid"),
                                             ("squeeze_excite", "excite_silu", (3, 8, 3, 3), 2, "silu", "sigmoid"),
                                             ("squeeze_excite", "excite_hard", (2, 16, 4, 5), 8, "relu", "hardsigmoid"),
                                             ("squeeze_excite_end", "block_end", (2, 16, 4, 5), 8, "relu", "sigmoid"),
                                             ("squeeze_excite_end", "block_end_odd", (3, 5, 7, 3), 4, "relu", "sigmoid"),
                                             ("squeeze_excite_end", "block_end_silu", (2, 32, 3, 4), 8, "silu", "hardsigmoid")):
        c = shape[1]
        f = {"hidden": functions[hidden], "gate": functions[gate]}
        x = m.draw(name, "x", shape)
        se = {"w1": m.draw(name, "w1", (d, c)), "b1": m.draw(name, "b1", (d,), 0.25, 1), "w2": m.draw(name, "w2", (c, d)), "b2": m.draw(name, "b2", (c,))}
        if op == "squeeze_excite":
            m.add(name, op, {"hidden": hidden, "gate": gate}, lambda *a, f=f: squeeze_excite(*a, **f), {"x": x, **se})
        else:
            w = m.draw(name, "w", (c, c, 1, 1), -0.5, 0.5)

            def branch(x, w, *se, f=f):
                return squeeze_excite(F.conv2d(x, w), *se, **f)

            z = away_from_zero(m.draw(name, "z", shape), branch(x, w, *se.values()))
            m.add(name, op, {"hidden": hidden, "gate": gate}, lambda *a, branch=branch: F.relu(branch(*a[:-1]) + a[-1]),
                  {"x": x, "w": w, **se, "z": z})


def losses(m):
    def case(name, logits, targets, smoothing=0.0, labels=None):
        m.add(name, "softmax_cross_entropy", {"smoothing": smoothing},
              lambda x, t: F.cross_entropy(x, t, label_smoothing=smoothing), {"x": logits, "target": targets},
              fixed=("target",), plain=None if labels is None else {"labels": labels})

    for name, n, k, lo, hi, smoothing in (("loss", 6, 10, -4, 4, 0.0), ("loss_smoothed", 6, 10, -4, 4, 0.1),
                                          ("loss_huge", 5, 10, -5000, 5000, 0.1),
                                          ("loss_many_classes", 3, 1000, -4, 4, 0.1), ("loss_two", 4, 2, -1, 1, 0.0)):
        labels = np.floor(fill.uniform(f"ops.{name}.labels", n) * k).astype(np.int64)
        onehot = torch.eye(k, dtype=torch.float64)[torch.from_numpy(labels)]
        case(name, m.draw(name, "x", (n, k), lo, hi), onehot, smoothing, labels)
    for name, smoothing in (("loss_mixed", 0.0), ("loss_mixed_smoothed", 0.1)):
        rows = torch.zeros(5, 8, dtype=torch.float64)
        for i in range(5):
            rows[i, i] += 0.25 + i / 8
            rows[i, (3 * i + 2) % 8] += 0.75 - i / 8
        case(name, m.draw(name, "x", (5, 8), -3, 3), rows, smoothing)
    soft = torch.softmax(m.draw("loss_soft", "target", (4, 6), -2, 2), 1).float().double()
    case("loss_soft", m.draw("loss_soft", "x", (4, 6), -3, 3), soft)


def make():
    m = Maker()
    for family in (conv2d, linear, batch_norm, activations, pools, arithmetic, shapes, transposed, group_norm, gates, losses):
        family(m)
    header = {"made_by": "tests/oracle/ops.py", "python": platform.python_version(), "torch": torch.__version__,
              "numpy": np.__version__, "precision": "float64"}
    return header, m.cases, m.files


def index_text(header, cases):
    rows = ",\n".join("    " + json.dumps(c) for c in cases)
    return '{\n  "versions": ' + json.dumps(header) + ',\n  "cases": [\n' + rows + "\n  ]\n}\n"


def check(out, cases, files):
    """Number of tensors that differ from the files in `out`."""
    bad = 0
    with open(os.path.join(out, "index.json")) as f:
        bad += json.load(f)["cases"] != cases
    for name, tensors in files.items():
        there = load_file(os.path.join(out, name))
        bad += set(there) != set(tensors)
        for key, want in tensors.items():
            got = there.get(key)
            scale = max(np.abs(want).max(), 1e-30)
            if got is None or got.dtype != want.dtype or np.abs(got - want).max() > 1e-13 * scale:
                print(f"differs: {name} {key}")
                bad += 1
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default=OUT)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(1)
    header, cases, files = make()
    if o.check:
        bad = check(o.out, cases, files)
        print(f"{len(cases)} cases, {bad} differences")
        return 1 if bad else 0
    os.makedirs(o.out, exist_ok=True)
    for name, tensors in files.items():
        save_file(tensors, os.path.join(o.out, name))
        os.chmod(os.path.join(o.out, name), 0o644)
    with open(os.path.join(o.out, "index.json"), "w") as f:
        f.write(index_text(header, cases))
    total = sum(os.path.getsize(os.path.join(o.out, f)) for f in [*files, "index.json"])
    print(f"{len(cases)} cases in {len(files)} files, {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

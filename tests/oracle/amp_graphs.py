#!/usr/bin/env python3
"""Pack the recorded runs of TensorFlow's auto_mixed_precision into tests/golden/tf-amp.

    amp_graphs.py [FOLDER]      FOLDER: the full records, default $TANDEM_SHARED/golden/tf-amp

Writes graphs.json and lists.json; tests/golden/tf-amp/README.md has their format and says what is left
out.  Names of casts are stored as the number in them: this script stops at one that has another form.
Needs Python 3.8 or later, no packages.
"""
import glob
import gzip
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "..", "golden", "tf-amp")
LABEL = {("half", "bf16"): "Bf16", ("bfloat16", "bf16"): "Bf16", ("half", "fp16"): "Fp16",
         ("half", "cpu"): "Fp16", ("float", "bf16"): "Fp32", ("float", "fp16"): "Fp32",
         ("float", "cpu"): "Fp32"}


class Table:
    """Texts and their numbers, in order of first use."""

    def __init__(self):
        self.rows = []
        self.number = {}

    def of(self, row):
        key = json.dumps(row)
        if key not in self.number:
            self.number[key] = len(self.rows)
            self.rows.append(row)
        return self.number[key]


def runs_of(text):
    """".....DD" -> "5.2D"; a single letter stands alone."""
    return re.sub(r"(.)\1+", lambda m: "%d%s" % (len(m.group()), m.group(1)), text)


def kind_of(node):
    types = ["%s %s %s %s %s" % (v[0], v[1], ",".join(map(str, v[2])) or "-",
                                 ",".join(map(str, v[3])) or "-", v[4]) for v in node["v"]]
    return [node["o"], node.get("x", "")] + types


def pack_node(node, before, index, kinds):
    """"9|suffix kind inputs": the name starts with 9 characters of the name before it."""
    inputs, shared = [], len(os.path.commonprefix([node["n"], before]))
    for text in node["i"]:
        if not text.startswith("^"):
            producer, port = text.rsplit(":", 1)
            inputs.append("%d:%s" % (index[producer], port))
    assert " " not in node["n"]
    head = ["%d|%s" % (shared, node["n"][shared:]), str(kinds.of(kind_of(node)))]
    if "d" in node:
        head.append("@" + node["d"])
    return " ".join(head + inputs)


def pack_casts(run, index):
    """Casts as "source:port>type#k consumer:port ...", k the number in the name."""
    names = {c[0]: i for i, c in enumerate(run["casts"])}

    def end(text):
        node, port = text.rsplit(":", 1)
        if node in names:  # a cast wins: names are unique
            return "c%d:%s" % (names[node], port)
        return "%d:%s" % (index[node], port)

    def order(text):  # casts first, then nodes, both by number and port
        at, port = text.lstrip("c").split(":")
        return text[0] != "c", int(at), int(port)

    packed = []
    for name, source, kind, users in run["casts"]:
        node, port = source.rsplit(":", 1)
        label = LABEL[kind, run["mode"]]
        if run["tf"] == "1.15":
            k = 0
            assert name == "%s-%s-CastTo%s-AutoMixedPrecision" % (node, port, label), name
        else:
            m = re.fullmatch(re.escape("%s-%s-CastTo%s-" % (node, port, label))
                             + r"(\d+)-AutoMixedPrecision", name)
            assert m, name
            k = int(m.group(1))
        packed.append("%s>%s%s %s" % (end(source), "h" if label != "Fp32" else "f", k or "",
                                      " ".join(sorted(map(end, users), key=order))))
    return ";".join(packed)


def pack_log(run, messages):
    packed = []
    for text in run["log"]:
        m = re.match(r"Converted (\d+)/(\d+) nodes (.*) using (\d+) cast", text)
        numbers = [m.group(1), m.group(2), m.group(4)] if m else []
        if m:
            text = re.sub(r"Converted \d+/\d+ nodes(.*) using \d+ cast",
                          r"Converted %/% nodes\1 using % cast", text)
        packed.append(",".join([str(messages.of(text))] + numbers))
    return " ".join(packed)


def pack_runs(graph, index, kinds, messages, settings):
    """Rows [run, paint, casts, log, support]; a number instead of a text: as in that row."""
    rows, seen = [], {}
    for name, run in graph["runs"].items():
        setting = [run["tf"], run["mode"], run["env"]]
        assert settings.setdefault(name, setting) == setting, name
        if run.get("crashed"):
            continue
        row = [name, runs_of(run["paint"]), pack_casts(run, index), pack_log(run, messages),
               " ".join("%s:%s" % kv for kv in run.get("support", {}).items())]
        full = list(row)
        for i in (1, 2, 4):
            if (i, full[i]) in seen and len(full[i]) > 3:
                row[i] = seen[i, full[i]]
            seen.setdefault((i, full[i]), len(rows))
        assert bool(run.get("failed")) == ("FAILED" in run["log"][-1])
        rows.append(row)
    return rows


def read_graphs(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.json*"))):
        if not path.endswith("lists.json"):
            with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
                yield json.load(f)


def dump(value):
    return json.dumps(value, separators=(",", ":"))


def pack_graphs(folder):
    kinds, messages, settings, texts = Table(), Table(), {}, []
    for graph in read_graphs(folder):
        index = {n["n"]: i for i, n in enumerate(graph["nodes"])}
        assert len(index) == len(graph["nodes"])
        before = [""] + [n["n"] for n in graph["nodes"]]
        nodes = [pack_node(n, b, index, kinds) for n, b in zip(graph["nodes"], before)]
        rows = pack_runs(graph, index, kinds, messages, settings)
        texts.append('{"name":%s,"note":%s,"preserve":%s,\n"nodes":[\n%s],\n"runs":[\n%s]}' % (
            dump(graph["name"]), dump(graph["note"]),
            dump(sorted(index[n] for n in graph["preserve"])),
            ",\n".join(map(dump, nodes)), ",\n".join(map(dump, rows))))
    return '{"settings":[\n%s],\n"messages":[\n%s],\n"kinds":[\n%s],\n"graphs":[\n%s]}\n' % (
        ",\n".join(dump([k] + v) for k, v in settings.items()),
        ",\n".join(map(dump, messages.rows)), ",\n".join(map(dump, kinds.rows)), ",\n".join(texts))


def changes(old, new):
    return ["-" + x for x in old if x not in new] + ["+" + x for x in new if x not in old]


def pack_lists(folder):
    """Rows [run, row it starts from or -1, changes of allow, infer, deny, clear]."""
    with open(os.path.join(folder, "lists.json")) as f:
        lists = json.load(f)
    rows, empty = [], dict.fromkeys(("allow", "infer", "deny", "clear"), [])
    done = []
    for name, lst in lists.items():
        choices = [(-1, empty)] + list(enumerate(done))
        packed = [[name, at] + [changes(old[k], lst[k]) for k in empty] for at, old in choices]
        rows.append(min(packed, key=lambda row: len(dump(row))))
        done.append(lst)
    return "[\n%s]\n" % ",\n".join(map(dump, rows))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.environ.get("TANDEM_SHARED", os.path.join(HERE, "..", "..", "..", "shared")),
        "golden", "tf-amp")
    for name, pack in ("graphs.json", pack_graphs), ("lists.json", pack_lists):
        with open(os.path.join(TARGET, name), "w") as f:
            f.write(pack(folder))


if __name__ == "__main__":
    main()

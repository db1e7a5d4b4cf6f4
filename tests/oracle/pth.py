#!/usr/bin/env python3
"""Weight files of PyTorch's, read by `tandem convert`, compared bit for bit with what was saved.

    pth.py --tandem build/tandem [--quick]     judge
    pth.py --write                             make tests/data/pth, and in tests/fuzz/corpus/pth what is
                                               not found-*

Every case is saved in the zip and in the legacy format.  --quick leaves the full-size networks out.
"""

import argparse
import io
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import OrderedDict

import numpy as np
import safetensors.torch
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "pth")
CORPUS = os.path.join(HERE, "..", "fuzz", "corpus", "pth")


def save(obj, path, legacy=False, **kwargs):
    torch.save(obj, path, _use_new_zipfile_serialization=not legacy, **kwargs)


def numbers(shape, dtype, seed):
    """Whole eighths, which every type here can hold, never all alike."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(-64, 64, shape, generator=g).to(torch.float64) / 8
    return (x.abs() if dtype in (torch.uint8, torch.bool) else x).to(dtype)


def all_kinds():
    """Types, shapes, strides and sharing, by the name that each keeps."""
    base = numbers((6, 8), torch.float32, 1)
    special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45, 3.4e38], dtype=torch.float32)
    shared = numbers((40,), torch.float32, 2)
    sd = OrderedDict()
    for i, dtype in enumerate([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64,
                               torch.int32, torch.uint8, torch.bool]):
        sd["types." + str(dtype).split(".")[1]] = numbers((3, 5), dtype, 10 + i)
    sd["special"] = special
    sd["scalar"] = torch.tensor(7)
    sd["empty"] = torch.zeros(2, 0, 3)
    sd["rank5"] = numbers((1, 2, 3, 1, 2), torch.float32, 3)
    sd["transposed"] = base.t()
    sd["part"] = base[1:5, 2:7]
    sd["steps"] = base[::2, ::3]
    sd["channels_last"] = numbers((2, 3, 4, 5), torch.float16, 4).contiguous(memory_format=torch.channels_last)
    sd["expanded"] = torch.tensor([1.5]).expand(4, 3)
    sd["shared.a"] = shared[:16].view(4, 4)
    sd["shared.b"] = shared[8:24].view(2, 8)
    sd["shared.c"] = shared
    sd["parameter"] = torch.nn.Parameter(numbers((4,), torch.float32, 5))
    return sd


class Tiny(torch.nn.Module):
    """What tests/data/pth/tiny.td is: a gated block, under timm's names."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        block = torch.nn.Module()
        block.conv1 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        block.bn1 = torch.nn.BatchNorm2d(8)
        block.se = torch.nn.Module()
        block.se.fc1 = torch.nn.Conv2d(8, 2, 1)
        block.se.fc2 = torch.nn.Conv2d(2, 8, 1)
        self.layer1 = torch.nn.Sequential(block)
        self.fc = torch.nn.Linear(8, 4)


def tiny(seed):
    net = Tiny()
    for i, (name, x) in enumerate(net.state_dict().items()):
        if name.endswith("tracked"):
            x.fill_(7)
        else:
            x.copy_(numbers(x.shape, torch.float32, 100 * seed + i) / 8)
            if name.endswith("running_var"):
                x.abs_().add_(1)
    return net


def as_reference(sd, prefix="module."):
    """The reference code's names: layers.N, squeeze.squeeze, matrices for squeeze-and-excitation."""
    out = OrderedDict()
    for name, x in sd.items():
        name = name.replace("layer1.", "layers.0.").replace("se.fc1", "squeeze.squeeze").replace("se.fc2", "squeeze.expand")
        out[prefix + name] = x.flatten(1) if ".squeeze." in name and name.endswith("weight") else x
    return out


def checkpoint(net, averaged, **more):
    """What the reference's main.py saves, after a step, so that there are momentum buffers."""
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.875, weight_decay=1 / 32768)
    state = {name: x.clone() for name, x in net.state_dict().items()}
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    opt.step()
    return {
        "epoch": 90,
        "best_prec1": 77.125,
        "arch": ("tiny", "fanin"),
        "state_dict": as_reference(state),
        "state_dict_ema": as_reference(averaged.state_dict()),
        "optimizer": opt.state_dict(),
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "set": {1, 2},
        "numpy": np.float64(1.5),
        "args": argparse.Namespace(lr=0.1, workers=4),
        **more,
    }


def plain(sd, dtype=None):
    """The tensors as a set of their own, as `convert` shall write them; booleans are bytes there."""
    out = OrderedDict()
    for name, x in sd.items():
        x = x.detach().clone(memory_format=torch.contiguous_format)
        x = x.to(torch.uint8) if x.dtype == torch.bool else x
        out[name] = x.to(dtype) if dtype and x.is_floating_point() else x
    return out


def same(got, want):
    if list(sorted(got)) != list(sorted(want)):
        return f"names differ: {set(got) ^ set(want)}"
    for name, x in want.items():
        y = got[name]
        if y.dtype != x.dtype or y.shape != x.shape:
            return f"{name}: {y.dtype}{list(y.shape)}, wanted {x.dtype}{list(x.shape)}"
        if x.numel() and x.contiguous().numpy(force=True).tobytes() != y.contiguous().numpy(force=True).tobytes() \
                if x.dtype != torch.bfloat16 else not torch.equal(x.view(torch.int16), y.view(torch.int16)):
            return f"{name}: other bits"
    return None


def networks(quick):
    """(name, state_dict to save, state_dict wanted)"""
    import timm
    import torchvision

    makes = [("torchvision resnet18", lambda: torchvision.models.resnet18(num_classes=10))]
    if not quick:
        makes += [
            ("torchvision resnet50", torchvision.models.resnet50),
            ("torchvision resnext50_32x4d", torchvision.models.resnext50_32x4d),
            ("torchvision wide_resnet50_2", torchvision.models.wide_resnet50_2),
            ("timm resnet50", lambda: timm.create_model("resnet50")),
            ("timm resnext50_32x4d", lambda: timm.create_model("resnext50_32x4d")),
            ("timm seresnet50", lambda: timm.create_model("seresnet50")),
            ("timm seresnext101_32x4d", lambda: timm.create_model("seresnext101_32x4d")),
        ]
    for name, make in makes:
        sd = make().state_dict()
        yield name, sd, plain(sd)
        yield name + ", module.", OrderedDict(("module." + k, x) for k, x in sd.items()), plain(sd)
        yield name + ", half", {k: x.half() if x.is_floating_point() else x for k, x in sd.items()}, plain(sd, torch.float16)


def cases(quick):
    """(name, object to save, tensors wanted, options)"""
    kinds = all_kinds()
    yield "all kinds", kinds, plain(kinds), []
    yield "all kinds in state_dict", {"state_dict": kinds, "epoch": 1}, plain(kinds), []
    net, averaged = tiny(1), tiny(2)
    want, want_ema = plain(net.state_dict()), plain(averaged.state_dict())
    ck = checkpoint(net, averaged)
    yield "checkpoint", ck, want, []
    yield "checkpoint, averages", ck, want_ema, ["--ema"]
    yield "torchvision's checkpoint", {"model": tiny(1).state_dict(), "epoch": 1, "model_ema": want_ema}, want, []
    for name, sd, wanted in networks(quick):
        yield name, sd, wanted, []


def judge(tandem, quick):
    bad = n = 0
    with tempfile.TemporaryDirectory() as folder:
        src, dst = os.path.join(folder, "in.pth"), os.path.join(folder, "out.safetensors")
        for name, obj, want, options in cases(quick):
            for form in ({}, {"legacy": True}, {"pickle_protocol": 3}, {"pickle_protocol": 4}, {"pickle_protocol": 5}):
                save(obj, src, **form)
                run = subprocess.run([tandem, "convert", "--overwrite", *options, src, dst], capture_output=True, text=True)
                fault = run.stderr.strip() if run.returncode else same(safetensors.torch.load_file(dst), want)
                n += 1
                if fault:
                    bad += 1
                    print(f"{name} {form}: {fault}")
    print(f"{n} files, {bad} wrong")
    return bad == 0


def _text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def _tensor(storage, n, offset, sizes, strides):
    """A tensor's pickle over a storage "0" of n elements."""
    number = lambda x: b"\x8a\x08" + struct.pack("<q", x)
    numbers = lambda xs: b"(" + b"".join(map(number, xs)) + b"t"
    key = b"(" + _text("storage") + b"ctorch\n" + storage.encode() + b"\n" + _text("0") + _text("cpu") + number(n) + b"tQ"
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + key + number(offset) + numbers(sizes) + numbers(strides)
            + b"\x89}tR")


def _legacy(obj):
    """A legacy file around an object's pickle, with six elements where it has a tensor."""
    head = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e") + b"\x80\2M\xe9\3." + b"\x80\2}" + _text("little_endian") + b"\x88s."
    has_tensor = b"_rebuild_tensor" in obj
    storages = _text("0") + b"a." + struct.pack("<q", 6) + bytes(24) if has_tensor else b"."
    return head + b"\x80\2" + obj + b"." + b"\x80\2]" + storages


def _zip(entries, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def hostile():
    """(name, bytes): files that want more than to be read."""
    entry = lambda x: b"}" + _text("w") + x + b"s"
    good = entry(_tensor("FloatStorage", 6, 0, [2, 3], [3, 1]))
    call = b"cos\nsystem\n" + _text("ls") + b"\x85R"
    for name, obj in {
        "os-system": call,
        "stack-global": b"\x8c\x02os\x8c\x06system\x93" + _text("ls") + b"\x85R",
        "inst": b"(" + _text("ls") + b"ios\nsystem\n",
        "obj": b"(cos\nsystem\n" + _text("ls") + b"o",
        "ext1": b"\x82\x01)R",
        "build": b"ctorch\nFloatStorage\n}b",
        "memo-loop": b"]q\0h\0a",
        "dict-loop": b"}q\0" + _text("state_dict") + b"h\0s",
        "underflow": b"R",
        "storage-2.9e18": entry(_tensor("FloatStorage", 2900000000000000000, 0, [1], [1])),
        "offset-out": entry(_tensor("FloatStorage", 6, 5, [2], [1])),
        "strides-out": entry(_tensor("FloatStorage", 6, 0, [2, 3], [4, 1])),
        "strides-overflow": entry(_tensor("FloatStorage", 6, 0, [3, 1], [2**63 - 1, 1])),
        "sizes-overflow": entry(_tensor("FloatStorage", 6, 0, [2**62, 4], [1, 1])),
        "expanded-bomb": entry(_tensor("FloatStorage", 6, 0, [10**9, 10**6], [0, 0])),
        "rank9": entry(_tensor("FloatStorage", 6, 0, [1] * 9, [1] * 9)),
    }.items():
        yield name, _legacy(obj)
    entries = [("a/data.pkl", b"\x80\2" + good + b"."), ("a/data/0", bytes(24)), ("a/byteorder", b"little")]
    yield "zip-good", _zip(entries)
    yield "zip-os-system", _zip([("a/data.pkl", b"\x80\2" + call + b".")])
    yield "zip-bomb", _zip(entries[:1] + [("a/data/0", bytes(1 << 20))], zipfile.ZIP_DEFLATED)
    yield "zip-dotdot", _zip(entries + [("a/../../x", b"x")])
    yield "zip-twice", _zip(entries + [("a/data/1", b"x")]).replace(b"a/data/1", b"a/data/0")
    yield "zip-big-endian", _zip(entries[:2] + [("a/byteorder", b"big")])
    plain = bytearray(_zip(entries))
    rows = [m.start() for m in re.finditer(rb"PK\x01\x02", plain)]
    overlap = bytearray(plain)
    overlap[rows[1] + 42 : rows[1] + 46] = overlap[rows[0] + 42 : rows[0] + 46]
    yield "zip-overlap", bytes(overlap)
    lie = bytearray(plain)
    lie[rows[1] + 20 : rows[1] + 28] = b"\xff" * 8
    yield "zip64-lie", bytes(lie)
    saturated = bytearray(plain)
    saturated[-14:-2] = b"\xff" * 12
    yield "zip64-missing", bytes(saturated)


def write():
    os.makedirs(DATA, exist_ok=True)
    os.makedirs(CORPUS, exist_ok=True)
    torch.manual_seed(0)
    path = lambda name: os.path.join(DATA, name)
    kinds = all_kinds()
    safetensors.torch.save_file(plain(kinds), path("kinds.safetensors"))
    net, averaged = tiny(1), tiny(2)
    safetensors.torch.save_file(plain(net.state_dict()), path("tiny.safetensors"))
    safetensors.torch.save_file(plain(averaged.state_dict()), path("tiny-ema.safetensors"))
    half = {"module.1." + k: x.half() if x.is_floating_point() else x for k, x in net.state_dict().items()}
    brain = {k: x.bfloat16() if x.is_floating_point() else x for k, x in net.state_dict().items()}
    bare = net.state_dict()
    ck = checkpoint(tiny(1), averaged)
    for form, legacy in (("zip", False), ("legacy", True)):
        save(kinds, path(f"kinds-{form}.pth"), legacy)
        save(ck, path(f"checkpoint-{form}.pth.tar"), legacy)
        save(half, path(f"half-{form}.pth"), legacy)
    save(brain, path("bf16-protocol4.pt"), pickle_protocol=4)
    save(bare, path("tiny.pth"))
    save({"x": torch.arange(6.0).reshape(2, 3).t(), "n": torch.tensor(3)}, path("small-zip.pth"))
    save({"x": torch.arange(6.0).reshape(2, 3).t(), "n": torch.tensor(3)}, path("small-legacy.pth"), True)
    save({"arch": "resnet50", "best_acc1": torch.tensor(76.5), "epoch": 4, "state_dict": {"w": torch.ones(1)}}, path("arch.pth.tar"))
    save({"f8": torch.zeros(2).to(torch.float8_e4m3fn)}, path("float8.pth"))
    save({"short": torch.zeros(2, dtype=torch.int16)}, path("int16.pth"))
    small = {"epoch": 3, "best_prec1": np.float64(1), "state_dict": {"w": torch.nn.Parameter(torch.ones(2, 2))}, "state_dict_ema": {"w": torch.zeros(2, 2)}}
    for form, legacy in (("zip", False), ("legacy", True)):
        save(small, os.path.join(CORPUS, f"torch-{form}"), legacy)
        save({"a": torch.arange(12.0).reshape(3, 4)[:, 1:3], "b": torch.ones(3, dtype=torch.float16)}, os.path.join(CORPUS, f"torch-strided-{form}"), legacy)
    save(small, os.path.join(CORPUS, "torch-protocol4"), pickle_protocol=4)
    group = {"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 1e-4, "nesterov": False, "foreach": None}
    trained = {**small, "optimizer": {"state": {0: {"momentum_buffer": torch.ones(2, 2)}}, "param_groups": [{**group, "params": [0]}]}}
    for form, legacy in (("zip", False), ("legacy", True)):
        save(trained, os.path.join(CORPUS, f"torch-optimizer-{form}"), legacy)
    for name, data in hostile():
        with open(os.path.join(CORPUS, name), "wb") as file:
            file.write(data)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--tandem")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--write", action="store_true")
args = parser.parse_args()
if args.write:
    write()
elif args.tandem:
    sys.exit(0 if judge(args.tandem, args.quick) else 1)
else:
    parser.error("--tandem or --write")

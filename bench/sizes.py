#!/usr/bin/env python3
"""Installed sizes: of Tandem, what `make install` copies; of a peer, its packages and all that they require.

    sizes.py PACKAGE...      bytes of these packages and their requirements in this Python's environment, as JSON

`bench/run --sizes` runs it in every environment and makes the table.
"""

import importlib.metadata as metadata
import json
import os
import re
import subprocess
import sys
import tempfile

import measure

ACCELERATOR = re.compile(r"^(nvidia-(?!dali)|cuda-|triton$)")
PEERS = {"PyTorch, torchvision": ("torch", "torchvision"), "TensorFlow": ("tensorflow",),
         "ONNX Runtime": ("onnxruntime",), "OpenVINO": ("openvino",), "DALI": ("nvidia.dali",)}


def required(names):
    """All distributions that these need here, themselves included; extras are followed, absent ones are not."""
    seen, todo, found = set(), [(n, ()) for n in names], {}
    while todo:
        name, extras = todo.pop()
        key = (re.sub(r"[-_.]+", "-", name).lower(), tuple(extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[key[0]] = dist
        for text in dist.requires or ():
            match = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?[^;]*(?:;(.*))?$", text)
            wanted = re.findall(r"""extra\s*==\s*["']([^"']+)["']""", match[3] or "")
            if not wanted or set(wanted) & set(extras):
                todo.append((match[1], tuple(sorted(e.strip() for e in (match[2] or "").split(",") if e.strip()))))
    return found


def size_of(dist):
    paths = {os.path.realpath(dist.locate_file(f)) for f in dist.files or ()}
    return sum(os.path.getsize(p) for p in paths if os.path.isfile(p))


def folder_size(folder):
    return sum(os.lstat(os.path.join(base, f)).st_size for base, _, files in os.walk(folder) for f in files)


def of_tandem(tandem):
    """[(label, bytes, note)]"""
    build = os.path.dirname(os.path.realpath(tandem))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "tandem")
        if subprocess.run(["strip", "-o", stripped, tandem], capture_output=True).returncode == 0:
            needed = subprocess.run(["ldd", tandem], capture_output=True, text=True).stdout
            libraries = {os.path.realpath(m[1]) for m in re.finditer(r"=> (/\S+)", needed)
                         if not m[1].startswith(("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"))}
            total = os.path.getsize(stripped) + sum(os.path.getsize(f) for f in libraries)
            names = ", ".join(sorted(os.path.basename(f) for f in libraries)) or "no library but the system's"
            rows.append(("Tandem: the command, stripped, and what it loads", total, names))
        prefix = os.path.join(folder, "prefix")
        result = subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--strip"], capture_output=True,
                                text=True)
        if result.returncode == 0:
            rows.append(("Tandem: make install, stripped", folder_size(prefix),
                         "command, both libraries, headers, oneDNN if it was unpacked by make setup"))
        else:
            rows.append(("Tandem: make install", None, f"failed: {measure.last_line(result.stderr)}"))
    return rows


def table(tandem, where):
    rows = of_tandem(tandem) if tandem else []
    for label, modules in PEERS.items():
        if modules[0] not in where:
            continue
        environment = where[modules[0]]
        packages = [environment.found[m][0] for m in modules if m in environment.found]
        result = subprocess.run([environment.python, os.path.abspath(__file__), *packages], capture_output=True,
                                text=True)
        if result.returncode:
            rows.append((label, None, f"failed: {measure.last_line(result.stderr)}"))
            continue
        sizes = json.loads(result.stdout)
        total = sum(sizes.values())
        cuda = sum(v for k, v in sizes.items() if ACCELERATOR.match(k))
        version = environment.found[modules[0]][1]
        rows.append((f"{label} {version}", total, f"{len(sizes)} packages" +
                     (f"; {(total - cuda) / 1e6:.0f} MB without nvidia-*, cuda-*, triton" if cuda else "")))
    lines = ["| installed | MB | |", "|---|--:|---|"]
    return "\n".join(lines + [f"| {label} | {'' if size is None else f'{size / 1e6:.0f}'} | {note} |"
                              for label, size, note in rows])


if __name__ == "__main__":
    print(json.dumps({name: size_of(dist) for name, dist in required(sys.argv[1:]).items()}))

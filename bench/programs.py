"""Which programs a table has, and their command lines."""

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
PRECISIONS = {"float32": "fp32", "bf16": "bf16", "int8": "int8"}  # Tandem's names
KERAS = ("resnet50", "resnet101", "resnet152")  # what peer_tf.py has
DETECTORS = {"ssd320": 320, "ssd300": 300}  # side of their images


@dataclass
class Program:
    name: str
    command: list = field(default_factory=list)
    is_ours: bool = False
    why_not: str = ""  # why it cannot run; the table says so


@dataclass
class Environment:
    python: str
    found: dict  # module -> [package, version]
    site: str


def environments(o):
    """module -> the environment to take it from"""
    chosen = {}
    pythons = {p: Environment(p, *measure.probe(p))
               for p in {o.python, o.torch_python, o.tf_python, o.peers_python} if p}
    for special, modules in ((o.torch_python, ("torch", "torchvision", "timm")), (o.tf_python, ("tensorflow",)),
                             (o.peers_python, ("onnxruntime", "openvino", "nvidia.dali", "onnx"))):
        for module in modules:
            for python in (special, o.python, o.peers_python):
                if python and module in pythons[python].found:
                    chosen[module] = pythons[python]
                    break
    return chosen


def script(environment, name, *args):
    return [environment.python, os.path.join(HERE, name), *args]


def exported(o, where, arch):
    """Path of the network as an ONNX file, made once by PyTorch -> (path, "") or ("", why not)"""
    if "torch" not in where:
        return "", "no PyTorch to export the network with"
    if "onnx" not in where:
        return "", "no package onnx to export the network with"
    with open(os.path.join(HERE, "..", "tests", "oracle", "nets.py"), "rb") as f:
        key = hashlib.sha256(f.read() + where["torch"].found["torch"][1].encode()).hexdigest()[:8]
    folder = os.path.join(o.cache, "onnx")
    path = os.path.join(folder, f"{arch}-{o.image_size}-{key}.onnx")
    if os.path.exists(path):
        return path, ""
    os.makedirs(folder, exist_ok=True)
    print(f"exporting {arch} to {path}", file=sys.stderr)
    result = subprocess.run(script(where["torch"], "export_onnx.py", arch, str(o.image_size), path, "--site",
                                   where["onnx"].site), capture_output=True, text=True)
    return (path, "") if result.returncode == 0 else ("", f"export failed: {measure.last_line(result.stderr)}")


def quantized(o, where, model, why):
    """Path of the exported network in 8-bit integers, made once by ONNX Runtime -> (path, "") or ("", why not)"""
    if why:
        return "", why
    if "onnxruntime" not in where or "onnx" not in where:
        return "", "no packages onnxruntime and onnx to quantize the network with"
    path = f"{model.removesuffix('.onnx')}-int8-{where['onnxruntime'].found['onnxruntime'][1]}.onnx"
    if os.path.exists(path):
        return path, ""
    print(f"quantizing {model}", file=sys.stderr)
    result = subprocess.run(script(where["onnxruntime"], "quantize_onnx.py", model, str(o.image_size), path),
                            capture_output=True, text=True)
    return (path, "") if result.returncode == 0 else ("", f"quantization failed: {measure.last_line(result.stderr)}")


def indivisible(o, batch):
    is_even = batch % o.ranks == 0 and o.threads % o.ranks == 0
    return "" if is_even else "batch or threads do not divide by the ranks"


def tandem_ranks(o, batch, work):
    """Tandem on o.ranks ranks: started by `tandem launch`, and by Open MPI if there is one."""
    command = [sys.executable, os.path.join(HERE, "tandem_ranks.py"), o.tandem, *work, "--ranks", str(o.ranks)]
    starts = [("", [])] + ([(", Open MPI", ["--mpirun", "mpirun.openmpi"])] if shutil.which("mpirun.openmpi") else [])
    more = ["--", *o.tandem_args] if o.tandem_args else []
    return [Program(f"Tandem, {o.ranks} ranks{name}", [*command, *mpi, *more], True, indivisible(o, batch))
            for name, mpi in starts]


def onnx_peers(o, where, model, why, why_not_ort, theirs, batch):
    """ONNX Runtime and OpenVINO on one file"""
    found = []
    if "onnxruntime" in where:
        found.append(Program("ONNX Runtime", script(where["onnxruntime"], "peer_onnxruntime.py", model, *theirs),
                             why_not=why or why_not_ort))
    if "openvino" in where:
        openvino = script(where["openvino"], "peer_openvino.py", model, *theirs, "--cache",
                          os.path.join(o.cache, "openvino"))
        found.append(Program("OpenVINO", openvino, why_not=why))
        if o.threads > 1 and batch % o.threads == 0:
            found.append(Program(f"OpenVINO, {o.threads} streams", [*openvino, "--streams", str(o.threads)],
                                 why_not=why))
    return found


def quantized_peers(o, where, arch, theirs, batch):
    """The peers that have 8-bit integers on a CPU, on a file that ONNX Runtime has quantized."""
    if arch in DETECTORS:
        return []
    model, why = quantized(o, where, *exported(o, where, arch))
    return onnx_peers(o, where, model, why, "", theirs, batch)


def networks(o, where, arch, precision, batch):
    """Programs of a training or inference table."""
    work = ["--mode", o.mode, "--arch", arch, "-b", str(batch), "--image-size", str(o.image_size),
            "--iters", str(o.iters_of(batch)), "--warmup", str(o.warmup_of(batch)), "--threads", str(o.threads)]
    theirs = [*work, "--precision", precision]
    found = []
    if not o.no_tandem:
        found.append(Program("Tandem", [o.tandem, "benchmark", *work, "--precision", PRECISIONS[precision], "--json",
                                        *(["--no-bound"] if o.slice else []), *o.tandem_args], True))
        if o.mode == "training" and o.ranks > 1:
            found.extend(tandem_ranks(o, batch, theirs))
        if o.real:
            ours = [sys.executable, os.path.join(HERE, "tandem_train.py"), o.tandem, *theirs]
            for name, more in (("synthetic", []), ("real", ["--real", o.real_folder])):
                found.append(Program(f"Tandem train, {name} images", [*ours, *more], True))
    if precision == "int8":
        return found + quantized_peers(o, where, arch, theirs, batch)
    if arch in DETECTORS:
        if "torchvision" in where:
            found.append(Program("torchvision RetinaNet-R50-FPN",
                                 script(where["torchvision"], "peer_retinanet.py", *theirs)))
        return found
    if "torch" in where:
        torch = script(where["torch"], "peer_torch.py", *theirs)
        found.append(Program("PyTorch eager", torch))
        if o.busy:
            found.append(Program("PyTorch eager, passive", [*torch, "--passive"]))
        if o.compile:
            found.append(Program("PyTorch compiled", [*torch, "--compile"]))
        if o.mode == "training" and o.ranks > 1:
            found.append(Program(f"PyTorch DDP, {o.ranks} ranks", [*torch, "--ranks", str(o.ranks)],
                                 why_not=indivisible(o, batch)))
    if "tensorflow" in where:
        found.append(Program("TensorFlow", script(where["tensorflow"], "peer_tf.py", *theirs),
                             why_not="" if arch in KERAS else "peer_tf.py has no such network"))
    if o.mode == "inference" and ("onnxruntime" in where or "openvino" in where):
        model, why = exported(o, where, arch)
        found.extend(onnx_peers(o, where, model, why,
                                "" if precision == "float32" else "no bf16 convolution on a CPU", theirs, batch))
    return found


def open_data(path, folder):
    """Make `folder`/set of a tar file or folder of images: a set with train/CLASS/IMAGE -> its path"""
    if not os.path.exists(path):
        raise SystemExit(f"'{path}' does not exist")
    if os.path.isfile(path):
        unpacked = os.path.join(folder, "unpacked")
        with tarfile.open(path) as archive:
            archive.extractall(unpacked, filter="data")
        path = unpacked
    while len(os.listdir(path)) == 1 and os.listdir(path)[0] not in ("train", "val"):
        path = os.path.join(path, os.listdir(path)[0])
    train = next((os.path.join(path, name) for name in ("train", "val")
                  if os.path.isdir(os.path.join(path, name))), path)
    target = os.path.join(folder, "set")
    os.makedirs(target)
    os.symlink(os.path.abspath(train), os.path.join(target, "train"))
    return target


def repeated(data, folder, n):
    """The same set with links, so that an epoch has `n` images or more -> its path"""
    files = sorted(glob.glob(os.path.join(data, "train", "*", "*")))
    if not files:
        raise SystemExit(f"'{data}' has no train/CLASS/IMAGE")
    target = os.path.join(folder, "repeated")
    for i in range(-(-n // len(files))):
        for file in files:
            name = os.path.join(target, "train", os.path.basename(os.path.dirname(file)))
            os.makedirs(name, exist_ok=True)
            os.symlink(os.path.realpath(file), os.path.join(name, f"{i}_{os.path.basename(file)}"))
    return target


def packed(o, data, folder, name, *options):
    """Path of the set as a pack file."""
    path = os.path.join(folder, f"{name}.pack")
    result = subprocess.run([o.tandem, "dataset", "pack", "--overwrite", data, path, *options], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"packing failed: {measure.last_line(result.stderr)}")
    return path


def shrunk(where, images, folder):
    """A copy of the images as a pack file of --short-side 256 has them -> (path, "") or ("", why not)"""
    if "torchvision" not in where:
        return "", "no Pillow to shrink the images with"
    path = os.path.join(folder, "shrunk")
    result = subprocess.run(script(where["torchvision"], "shrink.py", images, path, "256", "90"),
                            capture_output=True, text=True)
    return (path, "") if result.returncode == 0 else ("", f"shrinking failed: {measure.last_line(result.stderr)}")


def pipelines(o, where, data, folder):
    """Programs of an input pipeline table."""
    work = ["-b", str(o.data_batch), "--image-size", str(o.image_size), "--threads", str(o.threads)]
    found = []
    if not o.no_tandem:
        def ours(name, path, *options):
            found.append(Program(f"Tandem, {name}", [
                o.tandem, "benchmark", "--mode", "data", path, *work, "--iters", str(max(1, round(2 * o.seconds))),
                "--json", *options, *o.tandem_args], True))

        plain = packed(o, data, folder, "plain")
        small = packed(o, data, folder, "small", "--short-side", "256", "--quality", "90")
        ours("exact", data)
        ours("fast", data, "--decode", "fast")
        ours("packed, exact", plain)
        ours("packed, fast", plain, "--decode", "fast")
        ours("packed at 256, exact", small)
        ours("packed at 256, fast", small, "--decode", "fast")
    work += ["--seconds", str(o.seconds)]
    theirs = [os.path.join(data, "train"), *work]
    if "nvidia.dali" in where:
        dali = script(where["nvidia.dali"], "peer_dali.py", *theirs)
        found += [Program("DALI", dali), Program("DALI, fast IDCT", [*dali, "--fast"])]
        small, why = shrunk(where, theirs[0], folder)
        dali = script(where["nvidia.dali"], "peer_dali.py", small, *work, "--label", "images at 256")
        found += [Program("DALI, images at 256", dali, why_not=why),
                  Program("DALI, images at 256, fast IDCT", [*dali, "--fast"], why_not=why)]
    if "torchvision" in where:
        torchvision = script(where["torchvision"], "peer_torchvision.py", *theirs)
        found += [Program(f"torchvision, {kind}", [*torchvision, "--backend", kind]) for kind in ("pil", "tensor")]
    return found

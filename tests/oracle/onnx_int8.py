"""ONNX files in QDQ form, judged by the onnx checker and by ONNX Runtime.

    python tests/oracle/onnx_int8.py [--tandem build/release/tandem]

1. A network with one quantized convolution, whose result is float: its input is quantized once, so ONNX Runtime's logits
   have to be those of `tandem evaluate --device ref` to 1e-3 of the largest one, with and without its optimisations.
2. ResNet-18, MobileNetV3 and EfficientNet-B0 trained on a drawn set: the difference of the logits (root of the mean square) has to be below what
   quantization itself changes, and the accuracy within one image of 90.

ONNX Runtime runs with session.x64quantprecision, without which its u8 x s8 kernels saturate where there is no VNNI.
Needs onnx, onnxruntime, safetensors and numpy.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file


def rms(a, b):
    return float(np.sqrt(((a - b) ** 2).mean() / (a ** 2).mean()))


def logits(path, images, level):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"images": images})[0]


class Judge:
    def __init__(self, tandem, folder):
        self.tandem, self.folder, self.bad = tandem, folder, 0

    def run(self, *args):
        done = subprocess.run([self.tandem, *map(str, args)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            sys.exit(f"tandem {' '.join(map(str, args))}: {done.stderr}")

    def evaluate(self, weights, *args):
        self.run("evaluate", "set", "--weights", weights, "--logits", "l.safetensors", *args)
        return load_file(self.folder / "l.safetensors")["logits"]

    def judge(self, name, value, limit):
        self.bad += not value <= limit
        print(f"{name:60} {value:.2e} {'ok' if value <= limit else 'WRONG'}", flush=True)

    def network(self, name, weights, each):
        self.run("quantize", weights, "set", "-o", "q.safetensors", "--overwrite", "--calibration-images", 48)
        wide = self.evaluate("q.safetensors", "--precision", "fp32")
        # where a processor multiplies bf16, weights at the two ends of the network are rounded to it; in the file they are not
        ours = self.evaluate("q.safetensors", "--device", "ref", "--skip-passes", "int8_ends")
        images = load_file(self.folder / "t.safetensors")["images"]
        for opset in (13, 21):
            self.run("convert", "--overwrite", "q.safetensors", "q.onnx", "--opset", opset)
            for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
                theirs = logits(str(self.folder / "q.onnx"), images,
                                getattr(onnxruntime.GraphOptimizationLevel, level))
                each(f"{name}, opset {opset}, {level}", wide, ours, theirs)


def main():
    parser = argparse.ArgumentParser()
    here = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--tandem", default=here / "build/release/tandem", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        j = Judge(str(args.tandem.resolve()), pathlib.Path(folder))
        j.run("dataset", "draw", "set", "--classes", 10, "--train", 240, "--val", 90, "--size", 32, "--seed", 7)
        j.run("dataset", "check", "set", "--dump-tensors", "t.safetensors", "--split", "val", "--image-size", 32)
        j.run("train", "set", "--model", here / "examples/small_cnn.td", "--epochs", 2, "-b", 16, "--lr", 0.1, "--workspace", "a")
        j.network("one convolution", "a/checkpoint.safetensors",
                  lambda name, wide, ours, theirs: j.judge(name, np.abs(ours - theirs).max() / np.abs(ours).max(), 1e-3))

        def deep(name, wide, ours, theirs):
            j.judge(name + ", difference", rms(ours, theirs), rms(ours, wide))
            labels = load_file(j.folder / "t.safetensors")["labels"]
            right, wanted = ((x.argmax(1) == labels).sum() for x in (theirs, ours))
            j.judge(f"{name}, {wanted} right answers, difference", abs(int(right) - int(wanted)), 1)

        for arch in "resnet18", "mobilenet_v3_small", "efficientnet_b0":
            j.run("train", "set", "--arch", arch, "--image-size", 32, "-b", 16, "--epochs", 4, "--lr", 0.02, "--workspace", arch)
            j.network(arch, f"{arch}/checkpoint.safetensors", deep)
        sys.exit(j.bad != 0)


main()

"""The node tests of the package `onnx` in `tandem evaluate --model FILE`: one operator each, with the expected result.

    python tests/oracle/onnx_nodes.py [--tandem build/release/tandem] [--verbose] [OPERATOR ...]

A test has a model of one node, its operands and its result.  Tandem reads classifiers, so each node is put into one: the
operands become initializers, the result becomes a row of logits, and zeros that depend on the images are added.  Tests
whose operands that are computed with, or whose results, are not float32 are left out, and those of operators that no
image network has, and norms in training mode, because this is an evaluation.  Each test passes (the tolerance is that of onnx), is refused with a message that names the node or
the tensor and is out of scope (OUT_OF_SCOPE), or has failed: a wrong number, a crash, another message, or a refusal in scope.

Needs onnx, numpy and safetensors.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from safetensors.numpy import load_file, save_file

OPERATORS = """Abs Add AveragePool BatchNormalization Celu Clip Concat Conv ConvTranspose DepthToSpace Div Einsum Elu Erf Exp Expand Flatten Gather GatherND Gelu Gemm
GlobalAveragePool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization LeakyRelu Log
LogSoftmax MatMul Max MaxPool Mean Min Mish Mul Neg PRelu Pad Pow Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
ReduceMean ReduceMin ReduceSum ReduceSumSquare Relu Reshape Resize Selu Sigmoid Sign Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum
Tanh Tile Transpose Unsqueeze""".split()
OPSET = 21
OUT_OF_SCOPE = {  # tests by name; docs/formats/onnx.md lists the reasons
    r"(averagepool|maxpool|convtranspose)_[13]d": "images of one or three dimensions",
    r"einsum_(batch_diagonal|inner_prod|sum|transpose)": "equations that are no products of matrices",
    r"pool_2d_dilations": "dilated pooling",
    r"spacetodepth_(crd|dcr)_mode": "an attribute of a later opset",
    r"convtranspose_(autopad_same|kernel_shape|output_shape|pads?)$": "transposed convolutions by their output's shape, or uneven ones",
    r"^test_pow(_bcast_array|_example|_types_float32_int64)?$": "exponents that are tensors",
    r"reduce_.*_empty_set$": "tensors without elements",
    r"resize_.*(antialias|exclude_outside|half_pixel_symmetric|tf_crop_and_resize|not_larger|not_smaller)": "rare kinds of resizing",
    r"unsqueeze_(three_axes|unsorted_axes)$": "six dimensions",
}


def classifier(node, operands, names, result):
    """A model with the node: logits [1, elements] = its first result + 0 * images."""
    n = max(result.size, 1)
    inits = [numpy_helper.from_array(a, name) for a, name in zip(operands, names)]
    inits += [numpy_helper.from_array(np.array([1, -1], np.int64), "/row"),
              numpy_helper.from_array(np.zeros((n, 3), np.float32), "/zeros")]
    nodes = [node, helper.make_node("Reshape", [node.output[0], "/row"], ["/y"], name="/reshape"),
             helper.make_node("GlobalAveragePool", ["images"], ["/means"], name="/pool"),
             helper.make_node("Flatten", ["/means"], ["/flat"], name="/flatten"),
             helper.make_node("Gemm", ["/flat", "/zeros"], ["/zero"], name="/gemm", transB=1),
             helper.make_node("Add", ["/y", "/zero"], ["logits"], name="/add")]
    graph = helper.make_graph(nodes, "test", [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 4, 4])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, n])], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def load(case):
    """Node, operands, their names and the first result; None if a number is not float32."""
    node, names = case.model.graph.node[0], [v.name for v in case.model.graph.input]
    operands, results = case.data_sets[0]
    if not all(isinstance(a, (np.ndarray, np.generic)) for a in (*operands, *results)) or not operands or not results:
        return None
    if any(a.name == "training_mode" and a.i for a in node.attribute):
        return None
    operands, results = [np.asarray(a) for a in operands], [np.asarray(a) for a in results]
    if results[0].dtype != np.float32 or results[0].size == 0 or operands[0].dtype != np.float32:
        return None
    if any(a.dtype not in (np.float32, np.int64) for a in operands):
        return None
    node.name = "node"
    return node, operands, names, results[0]


def run(tandem, folder, node, operands, names, result):
    """('passed' | 'refused' | 'failed', a line)."""
    onnx.save(classifier(node, operands, names, result), str(folder / "net.onnx"))
    save_file({"images": np.ones((1, 3, 4, 4), np.float32), "labels": np.zeros(1, np.int64)}, folder / "in.safetensors")
    (folder / "out.safetensors").unlink(missing_ok=True)
    done = subprocess.run([tandem, "evaluate", "in.safetensors", "--model", "net.onnx", "--data-backend", "tensors", "-b", "1",
                           "--logits", "out.safetensors", "--precision", "fp32"], capture_output=True, text=True, cwd=folder)
    text = done.stderr.strip().splitlines()
    if not (folder / "out.safetensors").exists():
        line = text[-1] if text else f"exit code {done.returncode}"
        is_named = "'net.onnx': node 'node'" in line or any(f"'{name}'" in line for name in names)
        return ("refused" if done.returncode == 1 and is_named else "failed"), line
    found = next(iter(load_file(folder / "out.safetensors").values())).reshape(-1)
    try:
        np.testing.assert_allclose(found, result.reshape(-1), rtol=1e-3, atol=1e-6)
    except AssertionError as e:
        return "failed", " ".join(str(e).split())[:160]
    return "passed", ""


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tandem", default="build/release/tandem")
    p.add_argument("--verbose", action="store_true", help="print the refused tests, too")
    p.add_argument("operators", nargs="*")
    o = p.parse_args()
    tandem, counts, by_operator = os.path.abspath(o.tandem), collections.Counter(), collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            cases = sorted(load_model_tests(kind="node"), key=lambda c: c.name)
        for case in cases:
            nodes = case.model.graph.node
            if len(nodes) != 1 or nodes[0].domain or nodes[0].op_type not in (o.operators or OPERATORS):
                continue
            loaded = load(case)
            verdict, line = ("left out", "") if loaded is None else run(tandem, pathlib.Path(folder), *loaded)
            if verdict == "refused" and not any(re.search(p, case.name) for p in OUT_OF_SCOPE):
                verdict, line = "failed", f"refused, but in scope: {line}"
            counts[verdict] += 1
            by_operator[nodes[0].op_type][verdict] += 1
            if verdict == "failed" or (o.verbose and verdict == "refused"):
                print(f"{case.name}: {verdict}: {line}", flush=True)
    for operator, c in sorted(by_operator.items()):
        print(f"{operator:20} " + ", ".join(f"{c[v]} {v}" for v in ("passed", "refused", "failed", "left out") if c[v]))
    print(f"onnx {onnx.__version__}: " + ", ".join(f"{counts[v]} {v}" for v in ("passed", "refused", "failed", "left out")))
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()

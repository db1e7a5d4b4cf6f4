#!/usr/bin/env python3
"""Write one of the networks of tests/oracle/nets.py as an ONNX file, for the peers that read those.

    export_onnx.py ARCH SIZE OUT.onnx [--site FOLDER]

PyTorch's initial weights of seed 0, as peer_torch.py has them, and random ones in a last layer that begins at zero; batch
norms are folded into the convolutions; the batch is free, named 'batch'.  --site is a site-packages folder to take the package onnx from where this Python has none.
"""

import argparse
import os
import sys
import warnings

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("arch")
parser.add_argument("size", type=int)
parser.add_argument("out")
parser.add_argument("--site")
options = parser.parse_args()
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracle"))
if options.site:
    sys.path.append(options.site)

import torch  # noqa: E402

import nets  # noqa: E402

warnings.simplefilter("ignore")
torch.manual_seed(0)
net = nets.fill_zero_layers(nets.build(options.arch, 1000)).eval()
part = f"{options.out}.{os.getpid()}.part"
try:
    torch.onnx.export(net, (torch.zeros(1, 3, options.size, options.size),), part, dynamo=False, opset_version=17,
                      input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    os.replace(part, options.out)
finally:
    if os.path.exists(part):
        os.remove(part)

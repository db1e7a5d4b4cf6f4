#!/usr/bin/env python3
"""Quantize an ONNX file for the peers that read those: QDQ form, u8 activations, s8 weights for each channel.

    quantize_onnx.py MODEL.onnx SIZE OUT.onnx

ONNX Runtime's own quantization: ranges of random images (speeds do not depend on them), as `tandem benchmark --precision
int8` has them.
"""

import argparse
import os
import tempfile

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static, shape_inference

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("size", type=int)
parser.add_argument("out")
options = parser.parse_args()


class RandomImages(CalibrationDataReader):
    def __init__(self, n):
        self.left = n

    def get_next(self):
        self.left -= 1
        shape = (1, 3, options.size, options.size)
        return {"x": np.random.RandomState(self.left).standard_normal(shape).astype(np.float32)} if self.left >= 0 else None


part = f"{options.out}.{os.getpid()}.part"
try:
    with tempfile.TemporaryDirectory() as folder:
        ready = os.path.join(folder, "ready.onnx")
        shape_inference.quant_pre_process(options.model, ready)
        quantize_static(ready, part, RandomImages(4), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    os.replace(part, options.out)
finally:
    if os.path.exists(part):
        os.remove(part)

#!/usr/bin/env python3
"""Speed of ONNX Runtime's inference on the CPU: prints one JSON object.

    peer_onnxruntime.py MODEL.onnx -b 32 --threads 2

Float32, or int8 with a file of quantize_onnx.py: its CPU kernels have no bf16 convolution.  All graph optimisations, the batch fixed before they run, one
op at a time on all threads, input and output bound to buffers once.
"""

import peer_common as common

parser = common.parser(__doc__, ("inference",))
parser.add_argument("model")
options = common.begin(parser)
if options.precision == "bf16":
    parser.error("float32 and int8 only")


def main(o):
    import onnxruntime as ort

    imported = common.resident()
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = o.threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.add_free_dimension_override_by_name("batch", o.batch_size)
    session = ort.InferenceSession(o.model, settings, providers=["CPUExecutionProvider"])
    x = ort.OrtValue.ortvalue_from_numpy(common.random_images(o))
    y = ort.OrtValue.ortvalue_from_shape_and_type([o.batch_size, 1000], "float32")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    first, times = common.run_steps(o, lambda: session.run_with_iobinding(binding))
    common.show_steps(o, f"ONNX Runtime {ort.__version__}", first, times, memory_after_import_bytes=imported,
                      answer=y.numpy()[0, :4].tolist())


main(options)

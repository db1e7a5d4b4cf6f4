#!/usr/bin/env python3
"""Speed of OpenVINO's inference on the CPU: prints one JSON object.

    peer_openvino.py MODEL.onnx -b 32 --threads 2 --precision bf16 --cache FOLDER

With --precision int8 MODEL is a file of quantize_onnx.py.  The batch is fixed before compilation.  --streams 1 gives all threads to one request (latency); --streams N splits the batch
into N requests that run at once (throughput).  --cache keeps the compiled network for the next start.
"""

import peer_common as common

parser = common.parser(__doc__, ("inference",))
parser.add_argument("model")
parser.add_argument("--streams", type=int, default=1)
parser.add_argument("--cache")
options = common.begin(parser)
if options.batch_size % options.streams or options.threads % options.streams:
    parser.error(f"batch {options.batch_size} and {options.threads} threads do not divide by {options.streams} streams")


def main(o):
    import numpy as np
    import openvino as ov

    imported = common.resident()
    core = ov.Core()
    if o.cache:
        core.set_property({"CACHE_DIR": o.cache})
    model = core.read_model(o.model)
    part = o.batch_size // o.streams
    model.reshape([part, 3, o.image_size, o.image_size])
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY" if o.streams == 1 else "THROUGHPUT", "NUM_STREAMS": str(o.streams),
        "INFERENCE_NUM_THREADS": str(o.threads),
        "INFERENCE_PRECISION_HINT": "bf16" if o.precision == "bf16" else "f32",
    })
    x = common.random_images(o)
    requests = [compiled.create_infer_request() for _ in range(o.streams)]
    for i, request in enumerate(requests):
        request.set_input_tensor(ov.Tensor(np.ascontiguousarray(x[i * part:(i + 1) * part]), shared_memory=True))

    def step():
        if len(requests) == 1:
            requests[0].infer(share_outputs=True)
            return
        for request in requests:
            request.start_async()
        for request in requests:
            request.wait()

    first, times = common.run_steps(o, step)
    name = f"OpenVINO {ov.__version__.split('-')[0]}" + (f", {o.streams} streams" if o.streams > 1 else "")
    common.show_steps(o, name, first, times, memory_after_import_bytes=imported,
                      answer=requests[0].get_output_tensor().data[0, :4].tolist(),
                      settings={k: str(compiled.get_property(k)) for k in (
                          "NUM_STREAMS", "INFERENCE_NUM_THREADS", "INFERENCE_PRECISION_HINT", "ENABLE_CPU_PINNING",
                          "OPTIMAL_NUMBER_OF_INFER_REQUESTS")})


main(options)

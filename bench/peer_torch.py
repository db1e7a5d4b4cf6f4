#!/usr/bin/env python3
"""Speed of PyTorch on the same work as `tandem benchmark`: prints one JSON object.

    peer_torch.py --arch resnet50 --mode training -b 32 --threads 2
    peer_torch.py --arch resnext101-32x4d --precision bf16 --compile

Synthetic pictures, label smoothing 0.1, SGD with momentum; channels-last, as PyTorch's own guides advise.
`time_to_first_step_s` counts from the start of the process, imports included.
"""

import argparse
import json
import os
import resource
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--arch", default="resnet50")
parser.add_argument("--mode", choices=("training", "inference"), default="training")
parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--image-size", type=int, default=224)
parser.add_argument("--iters", type=int, default=10)
parser.add_argument("--warmup", type=int, default=2)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--compile", action="store_true", help="torch.compile")
parser.add_argument("--nchw", action="store_true", help="leave channels-last off")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracle"))


def since_start():
    """Seconds since the kernel started this process."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as f:
        return float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def resident():
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(o):
    import numpy as np
    import torch

    import nets

    imported = resident()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    net = nets.build(o.arch, 1000)
    x = torch.randn(o.batch_size, 3, o.image_size, o.image_size)
    y = torch.randint(0, 1000, (o.batch_size,))
    if not o.nchw:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    half = torch.autocast("cpu", torch.bfloat16, enabled=o.precision == "bf16")
    run = torch.compile(net) if o.compile else net

    if o.mode == "training":
        net.train()
        sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.875, weight_decay=1 / 32768)
        loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

        def step():
            sgd.zero_grad(set_to_none=True)
            with half:
                value = loss(run(x), y)
            value.backward()
            sgd.step()
            return value.item()
    else:
        net.eval()

        def step():
            with torch.inference_mode(), half:
                return float(run(x)[0, 0])

    first, times = None, []
    for i in range(o.warmup + o.iters):
        start = time.perf_counter()
        step()
        if first is None:
            first = since_start()
        if i >= o.warmup:
            times.append(time.perf_counter() - start)
    t = np.array(times)
    print(json.dumps({
        "program": f"torch {torch.__version__}" + (" compile" if o.compile else " eager"),
        "arch": o.arch, "mode": o.mode, "precision": o.precision, "batch_size": o.batch_size,
        "image_size": o.image_size, "threads": o.threads,
        "images_per_s": {"median": o.batch_size / float(np.median(t)), "min": o.batch_size / float(t.max()),
                         "max": o.batch_size / float(t.min())},
        "latency_ms": {"avg": 1e3 * float(t.mean()), **{f"p{q}": 1e3 * float(np.percentile(t, q))
                                                        for q in (50, 90, 95, 99)}},
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "memory_after_import_bytes": imported,
        "time_to_first_step_s": first,
    }))


main(options)

"""What the peers share: their options, the clock since the process began, the rounds, the object they print.

Nothing here imports a framework: `begin` sets the environment first, and `time_to_first_step_s` counts
from the start of the process, imports included.
"""

import argparse
import json
import math
import os
import resource
import statistics
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def parser(doc, modes=("training", "inference")):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--arch", default="resnet50")
    p.add_argument("--mode", choices=modes, default=modes[0])
    p.add_argument("--precision", choices=("float32", "bf16", "int8"), default="float32")
    p.add_argument("-b", "--batch-size", type=int, default=32)
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--iters", type=int, default=10)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    return p


def data_parser(doc):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", help="folder of CLASS/IMAGE")
    p.add_argument("-b", "--batch-size", type=int, default=64)
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--seconds", type=float, default=5, help="measured, in rounds of half a second after one to warm up")
    p.add_argument("--threads", type=int, default=2)
    return p


def begin(p):
    """Parse the command line, and say how many threads there are before anybody makes them."""
    o = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(o.threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return o


def since_start(pid="self"):
    """Seconds since the kernel started this process."""
    with open(f"/proc/{pid}/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as f:
        return float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def resident():
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak():
    """Most bytes of this process that were in memory at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def proportional(pids):
    """Bytes of several processes in memory now; what they share counts once."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += 1024 * next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total


def quantile(values, q):
    """The smallest value that q % of them do not exceed."""
    return sorted(values)[max(0, math.ceil(q / 100 * len(values)) - 1)]


def random_images(o):
    """[batch, 3, size, size] float32, the same in every program."""
    import numpy as np

    return np.random.RandomState(0).standard_normal((o.batch_size, 3, o.image_size, o.image_size)).astype(np.float32)


def run_steps(o, step):
    """Call `step` warmup + iters times -> (seconds since the start after the first, seconds of the measured ones)"""
    first, times = None, []
    for i in range(o.warmup + o.iters):
        start = time.perf_counter()
        step()
        if first is None:
            first = since_start()
        if i >= o.warmup:
            times.append(time.perf_counter() - start)
    return first, times


def show_steps(o, program, first, times, **more):
    median = statistics.median(times)
    print(json.dumps({
        "program": program, "arch": o.arch, "mode": o.mode, "precision": o.precision,
        "batch_size": o.batch_size, "image_size": o.image_size, "threads": o.threads, "iters": len(times),
        "images_per_s": {"median": o.batch_size / median, "min": o.batch_size / max(times),
                         "max": o.batch_size / min(times)},
        "latency_ms": {"avg": 1e3 * statistics.mean(times), "max": 1e3 * max(times),
                       **{f"p{q}": 1e3 * quantile(times, q) for q in (50, 90, 95, 99)}},
        "time_to_first_step_s": first, **{"peak_memory_bytes": peak(), **more},
    }))


def run_batches(o, take, round_s=0.5):
    """Call `take`, which returns a number of images -> (first, images/s of each round); the first round is dropped"""
    take()
    first, rates = since_start(), []
    for _ in range(1 + max(1, round(o.seconds / round_s))):
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < round_s:
            n += take()
        rates.append(n / (time.perf_counter() - start))
    return first, rates[1:]


def show_batches(o, program, first, rates, **more):
    print(json.dumps({
        "program": program, "mode": "data", "threads": o.threads, "batch_size": o.batch_size,
        "image_size": o.image_size,
        "images_per_s": {"median": statistics.median(rates), "min": min(rates), "max": max(rates)},
        "time_to_first_step_s": first, **{"peak_memory_bytes": peak(), **more},
    }))

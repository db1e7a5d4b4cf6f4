#!/usr/bin/env python3
"""Speed of `tandem benchmark` on several ranks of one machine: prints one JSON object.

    tandem_ranks.py TANDEM --ranks 2 -b 32 --threads 2 [--mpirun MPIRUN] [-- OPTIONS OF BENCHMARK]

--batch-size and --threads are the totals and are divided by the ranks.  The ranks are started by `tandem launch`, or by
MPIRUN.  Peak memory is the sum over the ranks, shared pages counted in each.
"""

import json
import os
import subprocess
import sys

import peer_common as common

parser = common.parser(__doc__, ("training",))
parser.add_argument("tandem")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--mpirun", help="start the ranks with this command")
parser.add_argument("more", nargs="*", help="after --: further options of 'tandem benchmark'")
options = common.begin(parser)


def launcher(o):
    if not o.mpirun:
        return [o.tandem, "launch", "--nproc", str(o.ranks)]
    # as many threads as asked for, wherever the scheduler puts them: `tandem launch` chooses processors itself
    open_mpi = ["--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return [o.mpirun, "-n", str(o.ranks), *(open_mpi if "openmpi" in o.mpirun else []), o.tandem]


def main(o):
    if o.batch_size % o.ranks or o.threads % o.ranks:
        raise SystemExit("the batch or the threads do not divide by the ranks")
    command = [*launcher(o), "benchmark", "--mode", o.mode, "--arch", o.arch, "--image-size", str(o.image_size),
               "-b", str(o.batch_size // o.ranks), "--threads", str(o.threads // o.ranks), "--iters", str(o.iters),
               "--warmup", str(o.warmup), "--precision", {"float32": "fp32", "bf16": "bf16"}[o.precision], "--json",
               *o.more]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        sys.stderr.write(result.stderr)
        raise SystemExit(result.returncode)
    found = json.loads(result.stdout[result.stdout.index("{"):])
    if found["ranks"] != o.ranks:
        raise SystemExit(f"measured {found['ranks']} ranks, wanted {o.ranks}")
    found["batch_size"] *= o.ranks
    found["threads"] *= o.ranks
    found["all_processes_bytes"] = found["peak_memory_bytes"] * o.ranks
    print(json.dumps(found))


main(options)

#!/usr/bin/env python3
"""Speed of PyTorch on the same work as `tandem benchmark`: prints one JSON object.

    peer_torch.py --arch resnet50 --mode training -b 32 --threads 2
    peer_torch.py --arch resnext101-32x4d --precision bf16 --compile
    peer_torch.py --ranks 2 --threads 2

Synthetic images, label smoothing 0.1, SGD with momentum; channels-last, as PyTorch's own guides advise.
bf16 is autocast in training; in inference the network itself is bf16, which saves the casts.  --compile folds batch
norms in inference (Inductor's freezing).  --ranks N is DistributedDataParallel over gloo: N processes share the
batch and the threads; buffers are not broadcast and gradients live in the buckets, both favours to it.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile

import peer_common as common

p = common.parser(__doc__)
p.add_argument("--compile", action="store_true", help="torch.compile")
p.add_argument("--nchw", action="store_true", help="leave channels-last off")
p.add_argument("--passive", action="store_true", help="threads that wait sleep at once, not after spinning")
p.add_argument("--ranks", type=int, default=1, help="processes that share the batch and the threads")
p.add_argument("--rank", type=int, default=0, help="of a process that another one starts")
p.add_argument("--store", help="file where the ranks meet")
options = common.begin(p)
if options.batch_size % options.ranks or options.threads % options.ranks:
    p.error(f"batch {options.batch_size} and {options.threads} threads do not divide by {options.ranks} ranks")
threads = options.threads // options.ranks
os.environ["OMP_NUM_THREADS"] = str(threads)
if options.passive:
    os.environ["OMP_WAIT_POLICY"] = "passive"
if options.mode == "inference":
    os.environ["TORCHINDUCTOR_FREEZING"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracle"))


def mapped_files():
    """Bytes of files, libraries most of all, of this process in memory now."""
    with open("/proc/self/status") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith("RssFile:"))


def main(o):
    import torch

    import nets

    imported = common.resident()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = nets.fill_zero_layers(nets.build(o.arch, 1000))
    batch = o.batch_size // o.ranks
    x = torch.from_numpy(common.random_images(o))[o.rank * batch:(o.rank + 1) * batch].clone()
    y = torch.randint(0, 1000, (batch,))
    is_half = o.precision == "bf16"
    half = torch.autocast("cpu", torch.bfloat16, enabled=is_half)
    if not o.nchw:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    answer = None

    if o.mode == "training":
        run = net.train()
        if o.ranks > 1:
            torch.distributed.init_process_group("gloo", f"file://{o.store}", timeout=datetime.timedelta(minutes=5),
                                                 rank=o.rank, world_size=o.ranks)
            run = torch.nn.parallel.DistributedDataParallel(net, forward_sync_buffers=False,
                                                            gradient_as_bucket_view=True)
        run = torch.compile(run) if o.compile else run
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
        if is_half:
            net, x = net.bfloat16(), x.bfloat16()
        run = torch.compile(net) if o.compile else net

        def step():
            nonlocal answer
            with torch.inference_mode():
                answer = run(x)[0, :4].float().tolist()

    first, times = common.run_steps(o, step)
    kind = (" DDP" if o.ranks > 1 else "") + (" compiled" if o.compile else " eager") + (" passive" if o.passive else "")
    more = {"memory_after_import_bytes": imported, "peak_memory_bytes": common.peak(), "answer": answer}
    if o.ranks > 1:
        # all ranks' peaks; the libraries that they map in common count once
        mine = torch.tensor([common.peak() - (mapped_files() if o.rank else 0)], dtype=torch.int64)
        torch.distributed.all_reduce(mine)
        more["peak_memory_bytes"] = more["all_processes_bytes"] = int(mine)
        torch.distributed.destroy_process_group()
    if o.rank == 0:
        common.show_steps(o, f"PyTorch {torch.__version__}{kind}" + (f", {o.ranks} ranks" if o.ranks > 1 else ""),
                          first, times, **more)


def main_of_ranks(o):
    """Start the other ranks, be the first one, and leave nobody behind."""
    with tempfile.TemporaryDirectory() as folder:
        o.store = os.path.join(folder, "store")
        others = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank), "--store", o.store])
                  for rank in range(1, o.ranks)]
        try:
            main(o)
            failed = [child.args for child in others if child.wait(60)]
        finally:
            for child in others:
                child.kill()
                child.wait()
    if failed:
        raise SystemExit(f"a rank failed: {json.dumps(failed)}")


if options.ranks > 1 and options.rank == 0:
    if options.mode != "training":
        p.error("--ranks is about training")
    main_of_ranks(options)
else:
    main(options)

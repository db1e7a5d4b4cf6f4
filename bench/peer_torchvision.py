#!/usr/bin/env python3
"""Speed of torchvision's input pipeline under PyTorch's DataLoader: prints one JSON object.

    peer_torchvision.py DATA/train -b 64 --threads 2
    peer_torchvision.py DATA/train --backend tensor

As many worker processes as threads; RandomResizedCrop, flip, float32, normalised.  --backend pil decodes and resizes with
Pillow; tensor decodes with torchvision.io and resizes uint8 tensors, antialiased.  An endless sampler, so that
no epoch's end is waited for.
"""

import os

import peer_common as common

parser = common.data_parser(__doc__)
parser.add_argument("--backend", choices=("pil", "tensor"), default="pil")
options = common.begin(parser)


class Endless:
    """Batches of indices, epoch after epoch in a new order."""

    def __init__(self, n, batch_size):
        self.n, self.batch_size = n, batch_size

    def __iter__(self):
        import torch

        left = []
        while True:
            while len(left) < self.batch_size:
                left += torch.randperm(self.n).tolist()
            yield left[:self.batch_size]
            left = left[self.batch_size:]


def read_tensor(path):
    import torchvision

    return torchvision.io.decode_image(path, torchvision.io.ImageReadMode.RGB)


def main(o):
    import torch
    import torchvision
    from torchvision.transforms import v2

    imported = common.resident()
    torch.manual_seed(0)
    crop, flip = v2.RandomResizedCrop(o.image_size, antialias=True), v2.RandomHorizontalFlip()
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(common.MEAN, common.STD)]
    if o.backend == "pil":
        data = torchvision.datasets.ImageFolder(o.data, v2.Compose([crop, flip, v2.ToImage(), *finish]))
    else:
        data = torchvision.datasets.ImageFolder(o.data, v2.Compose([crop, flip, *finish]), loader=read_tensor)
    loader = torch.utils.data.DataLoader(data, batch_sampler=Endless(len(data), o.batch_size), num_workers=o.threads)
    batches = iter(loader)
    last = None

    def take():
        nonlocal last
        last, labels = next(batches)
        return len(labels)

    first, rates = common.run_batches(o, take)
    workers = [worker.pid for worker in batches._workers]
    common.show_batches(o, f"torchvision {torchvision.__version__}, {o.backend}", first, rates,
                        memory_after_import_bytes=imported,
                        all_processes_bytes=common.proportional([os.getpid(), *workers]), workers=len(workers),
                        batch_shape=list(last.shape), batch_dtype=str(last.dtype), mean=float(last.mean()),
                        std=float(last.std()))


main(options)

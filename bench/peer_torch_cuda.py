#!/usr/bin/env python3
"""Speed of PyTorch on an NVIDIA GPU, on the work of `tandem benchmark --device cuda`: prints one JSON object.

    peer_torch_cuda.py --arch resnet50 --mode training --precision fp16 -b 256
    peer_torch_cuda.py --arch ssd320 --precision fp16 -b 64

Channels-last; fp16 and bf16 by autocast, fp16 with a gradient scaler; in inference the network itself is half, which saves the
casts, and --compile folds batch norms; fp32 without and tf32 with TensorFloat-32.  SGD with momentum, its fused form; label
smoothing 0.1; cudnn.benchmark chooses kernels.  Images are on the GPU before the first step.  The program waits for the GPU after
every ten steps, which count with their mean.  ssd320: torchvision's RetinaNet-R50-FPN, the nearest network that PyTorch has; not compiled.
"""

import argparse
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "oracle"))
sys.dont_write_bytecode = True
HALF = {"fp16": "float16", "bf16": "bfloat16"}
BOXES = 7  # of an image, as COCO has on average


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--arch", default="resnet50")
    p.add_argument("--mode", choices=("training", "inference"), default="training")
    p.add_argument("--precision", choices=("fp32", "tf32", "fp16", "bf16"), default="fp16")
    p.add_argument("--compile", action="store_true", help="torch.compile")
    p.add_argument("-b", "--batch-size", type=int, default=256)
    p.add_argument("--image-size", type=int, help="default 224, for ssd320 320")
    p.add_argument("--iters", type=int, default=50)
    p.add_argument("--warmup", type=int, default=10)
    o = p.parse_args()
    o.image_size = o.image_size or (320 if o.arch == "ssd320" else 224)
    return o


def made_up_boxes(torch, n, size):
    """Boxes [BOXES, 4] px (left, top, right, bottom) and labels of n images."""
    random = torch.Generator().manual_seed(0)
    targets = []
    for _ in range(n):
        corner = torch.rand(BOXES, 2, generator=random) * 0.6 * size
        extent = (0.1 + 0.3 * torch.rand(BOXES, 2, generator=random)) * size
        targets.append({"boxes": torch.cat([corner, corner + extent], 1).cuda(),
                        "labels": torch.randint(1, 91, (BOXES,), generator=random).cuda()})
    return targets


def detector(torch, o):
    """A network, and its loss on made-up images."""
    from torchvision.models.detection import retinanet_resnet50_fpn

    size = o.image_size
    net = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, trainable_backbone_layers=5,
                                 min_size=size, max_size=size, image_mean=[0, 0, 0], image_std=[1, 1, 1])
    net = net.cuda().to(memory_format=torch.channels_last)
    images = list(torch.randn(o.batch_size, 3, size, size, device="cuda"))
    targets = made_up_boxes(torch, o.batch_size, size)
    return net, lambda run: sum(run(images, targets).values()), lambda run: run(images)


def classifier(torch, o):
    import nets

    half = HALF.get(o.precision) if o.mode == "inference" else None
    net = nets.build(o.arch, 1000).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(o.batch_size, 3, o.image_size, o.image_size, device="cuda").to(memory_format=torch.channels_last)
    if half:
        net, x = net.to(getattr(torch, half)), x.to(getattr(torch, half))
    y = torch.randint(0, 1000, (o.batch_size,), device="cuda")
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    return net, lambda run: loss(run(x), y), lambda run: run(x)


def main(o):
    os.environ["TORCHINDUCTOR_FREEZING"] = "1" if o.mode == "inference" else "0"
    import torch

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = o.precision == "tf32"
    net, loss_of, answer_of = (detector if o.arch == "ssd320" else classifier)(torch, o)
    is_cast = o.precision in HALF and (o.mode == "training" or o.arch == "ssd320")
    cast = torch.autocast("cuda", getattr(torch, HALF.get(o.precision, "float16")), enabled=is_cast)
    scaler = torch.amp.GradScaler("cuda", enabled=o.precision == "fp16")
    net.train(o.mode == "training")
    run = torch.compile(net) if o.compile and o.arch != "ssd320" else net
    sgd = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.875, weight_decay=1 / 32768, fused=True)

    def train():
        sgd.zero_grad(set_to_none=True)
        with cast:
            value = loss_of(run)
        scaler.scale(value).backward()
        scaler.step(sgd)
        scaler.update()

    def infer():
        with torch.inference_mode(), cast:
            answer_of(run)

    step, times, many = train if o.mode == "training" else infer, [], min(10, o.iters)
    for _ in range(o.warmup):
        step()
    for _ in range(o.iters // many):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(many):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / many)
    kind = "compiled" if o.compile and o.arch != "ssd320" else "eager"
    print(json.dumps({
        "program": f"PyTorch {torch.__version__} {kind}", "arch": o.arch, "mode": o.mode, "precision": o.precision,
        "batch_size": o.batch_size, "image_size": o.image_size, "iters": len(times) * many,
        "images_per_s": {"median": o.batch_size / statistics.median(times), "min": o.batch_size / max(times),
                         "max": o.batch_size / min(times)},
        "gpu_memory_bytes": torch.cuda.max_memory_allocated(),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main(options()))

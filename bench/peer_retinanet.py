#!/usr/bin/env python3
"""Speed of torchvision's RetinaNet-R50-FPN, the nearest kin of SSD320, on the work of `tandem benchmark --arch ssd320`: one JSON object.

    peer_retinanet.py --mode training --precision bf16 -b 8 --image-size 320 --threads 2
    peer_retinanet.py --mode inference -b 1 --image-size 320

91 classes, channels-last, autocast for bf16, SGD with momentum; 7 boxes an image, as COCO has on average.  Images come at the
size the network works at, so its own resizing does nothing.  All norms are trained, as SSD320's are.  The networks are not
the same: multiply-adds of one forward pass are in the result (`macs`), for convolutions and matrix products.
"""

import os
import sys

import peer_common as common

BOXES = 7

options = common.begin(common.parser(__doc__))
os.environ["OMP_NUM_THREADS"] = str(options.threads)


def made_up_targets(torch, n, size):
    """Boxes [BOXES, 4] px (left, top, right, bottom) and labels of n images."""
    random = torch.Generator().manual_seed(0)
    targets = []
    for _ in range(n):
        corner = torch.rand(BOXES, 2, generator=random) * 0.6 * size
        extent = (0.1 + 0.3 * torch.rand(BOXES, 2, generator=random)) * size
        targets.append({"boxes": torch.cat([corner, corner + extent], 1),
                        "labels": torch.randint(1, 91, (BOXES,), generator=random)})
    return targets


def macs_of(torch, net, image):
    """Multiply-adds of one image's forward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    net.eval()
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        net([image])
    return counter.get_total_flops() // 2


def main(o):
    import torch
    from torchvision.models.detection import retinanet_resnet50_fpn

    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    size = o.image_size
    net = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, trainable_backbone_layers=5,
                                 min_size=size, max_size=size, image_mean=[0, 0, 0], image_std=[1, 1, 1])
    images = list(torch.from_numpy(common.random_images(o)))
    macs = macs_of(torch, net, images[0])
    net = net.to(memory_format=torch.channels_last)
    targets = made_up_targets(torch, o.batch_size, size)
    half = torch.autocast("cpu", torch.bfloat16, enabled=o.precision == "bf16")

    if o.mode == "training":
        net.train()
        sgd = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=4e-4)

        def step():
            sgd.zero_grad(set_to_none=True)
            with half:
                loss = sum(net(images, targets).values())
            loss.backward()
            sgd.step()
            return loss.item()
    else:
        net.eval()

        def step():
            with torch.inference_mode(), half:
                return len(net(images))

    first, times = common.run_steps(o, step)
    common.show_steps(o, f"PyTorch {torch.__version__} torchvision RetinaNet-R50-FPN", first, times, macs=macs)


if __name__ == "__main__":
    sys.exit(main(options))

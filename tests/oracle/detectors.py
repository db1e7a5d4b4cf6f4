#!/usr/bin/env python3
"""Tandem against torchvision: its own detectors, from weights to boxes.

    detectors.py --tandem build/tandem [--step build/tests/detector_step] [--write]

torchvision's model is the judge: its state_dict loads strictly and its own code matches, computes losses and finds
boxes.  Both sides get the same weights (torchvision's initial values, larger heads, norms drawn anew) and the same batch.
Heads, losses, gradients, statistics and three SGD steps are checked against float64, torchvision's own float32
printed beside (`torch`); gradients of single tensors have a wider limit than all of them together, since an input of a ReLU
within rounding of its kink changes one: in float64, images changed by 1e-5 of themselves change the
gradient of one tensor of SSDLite (features.0.8.block.1.1.bias) by 2e-2, and all together by 3e-6.  Matching and boxes are float32 on both sides: labels are equal, and the boxes found are the same
where scores are not within rounding.  Whole images go through both programs: `evaluate` of an annotated folder, and the
ONNX file in ONNX Runtime.

--write makes tests/golden/torch-detectors: anchors, matches, boxes and a training pass, which `make test` reads.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image
from safetensors.numpy import save_file
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import box_iou

import fill
import nets
from command import Judge, Tandem, l2, off, worst

LIMITS = {"heads": 1e-4, "loss": 1e-5, "gradients": 5e-2, "all gradients": 1e-4, "statistics": 1e-5, "weights": 1e-5, "targets": 1e-5,
          "boxes": 1e-4, "scores": 1e-5}
STEPS, LR, MOMENTUM, DECAY = 3, 0.01, 0.9, 4e-5
CASES = {"ssdlite320_mobilenet_v3_large": [(320, 2), (192, 3)], "retinanet_resnet50_fpn": [(128, 2)]}  # side and batch
IMAGE_SIDE = 320  # of image files
GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "torch-detectors")


def build(arch, classes):
    torch.manual_seed(1)
    # images are stretched here, as torchvision does for SSDLite
    size = {} if arch.startswith("ssdlite") else {"fixed_size": (IMAGE_SIDE, IMAGE_SIDE)}
    return getattr(torchvision.models.detection, arch)(weights=None, weights_backbone=None, num_classes=classes + 1, **size)


def early(state):
    """RetinaNet's weights as torchvision's COCO_V1 are: the names of version 0.12, norms with epsilon 0, here with some small
    variances, so that it matters."""
    names = {}
    for name, x in state.items():
        parts = name.split(".")
        if "_head.conv." in name:
            parts[3:5] = [str(2 * int(parts[3]))]
        x = x.clone()
        if name.endswith("running_var"):
            x[::3] *= 1e-4
        elif f"{name.rsplit('.', 1)[0]}.running_var" in state and name.endswith(".weight"):
            x[::3] *= 1e-2
        if "num_batches" not in name:
            names[".".join(parts)] = x
    return names


# --------------------------------------------------------------------------------- weights and batches


def start(arch, classes):
    """torchvision's initial values; heads large enough that scores differ; norms that keep most inputs of ReLU, relu6 and
    hardswish off their kinks; the statistics of some images, so that evaluation does not saturate: in a network whose heads
    are the same everywhere, scores tie."""
    net, generator = build(arch, classes), torch.Generator().manual_seed(2)
    state = net.state_dict()
    for name, x in state.items():
        root = name.rsplit(".", 1)[0]
        rand = torch.rand(x.shape, generator=generator)
        if name.endswith("running_mean"):
            x.copy_(0.2 * rand - 0.1)
        elif name.endswith("running_var"):
            x.copy_(0.5 + rand)
        elif f"{root}.running_mean" in state and name.endswith("weight"):
            x.copy_(0.3 + 0.2 * rand if arch.startswith("ssdlite") else 0.15 + 0.3 * rand)
        elif f"{root}.running_mean" in state and name.endswith("bias"):
            x.copy_(2.6 + 0.4 * rand)
        elif x.dim() == 4:
            x.mul_((1 / x[0].numel()) ** 0.5 / x.std().clamp(min=1e-9) * (0.3 if name.startswith("head.") else 1))
        elif name.endswith("bias"):
            x.copy_(0.2 * rand - 0.1)
    if arch.startswith("retinanet"):  # torchvision's RetinaNet would find objects of the background's column
        state["head.classification_head.cls_logits.bias"].view(9, -1)[:, 0] = -12
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for m in norms:
        m.momentum = 1.0
    if norms:
        with torch.no_grad():
            forward(net.train(), torch.from_numpy(smooth(np.random.default_rng(3), 4, 192)))
    return {n: t.clone() for n, t in net.state_dict().items()}


def network(arch, classes, state, dtype):
    net = build(arch, classes)
    net.load_state_dict(state, strict=True)
    return net.to(dtype)


def objects(rng, batch, most=8):
    """Boxes ymin, xmin, ymax, xmax as fractions, and classes 1 ..; some small, some alike, so that overlaps tie."""
    boxes, classes = np.zeros((batch, most, 4), np.float32), np.zeros((batch, most), np.int64)
    for i in range(batch):
        n = rng.integers(1, most + 1)
        size = rng.uniform(.02, .7, (n, 2)) ** 1.5
        low = rng.uniform(0, 1, (n, 2)) * (1 - size)
        boxes[i, :n] = np.round(np.concatenate([low, low + size], 1) * 320) / 320  # whole pixels at 320
        boxes[i, :n, 2:] = np.maximum(boxes[i, :n, 2:], boxes[i, :n, :2] + np.float32(2 / 320))
        if n > 3:
            boxes[i, 1] = boxes[i, 0]  # two objects in one place
        classes[i, :n] = rng.integers(1, 6, n)
    return boxes, classes


def smooth(rng, n, side):
    """Images of large random patches and some noise: heads differ from place to place, so that few scores tie."""
    small = torch.from_numpy(rng.normal(0, 1.5, (n, 3, side // 16, side // 16)).astype(np.float32))
    large = torch.nn.functional.interpolate(small, size=(side, side), mode="bicubic").numpy()
    return np.ascontiguousarray(large + rng.normal(0, 0.3, large.shape).astype(np.float32))


def truths(batch, side, dtype=torch.float32):
    """torchvision's targets: pixels, x before y."""
    rows = []
    for boxes, classes in zip(batch["boxes"], batch["classes"]):
        kept = torch.from_numpy(boxes[classes > 0][:, [1, 0, 3, 2]]) * side
        rows.append({"boxes": kept.to(dtype), "labels": torch.from_numpy(classes[classes > 0])})
    return rows


# --------------------------------------------------------------------------------- torchvision


def forward(net, images):
    features = list(net.backbone(images).values())
    return features, net.head(features)


def anchors_of(net, images, features):
    sizes = [tuple(images.shape[-2:])] * len(images)
    return net.anchor_generator(ImageList(images, sizes), features)


def matches(net, images, batch):
    """By float32 anchors, as torchvision trains: exact ties are decided by rounding."""
    features, _ = forward(net, images)
    rows = anchors_of(net, images, features)
    return [net.proposal_matcher(box_iou(t["boxes"], a)) for t, a in zip(truths(batch, images.shape[-1]), rows)]


def losses_of(net, images, batch, matched):
    features, heads = forward(net, images)
    rows = anchors_of(net, images, features)
    targets = truths(batch, images.shape[-1], images.dtype)
    if hasattr(net.head, "compute_loss"):  # RetinaNet
        losses = net.head.compute_loss(targets, heads, rows, matched)
    else:
        losses = net.compute_loss(targets, heads, rows, matched)
    return heads, losses["classification"], losses["bbox_regression"]


def one_pass(arch, classes, state, batch, matched, dtype):
    net = network(arch, classes, state, dtype)
    images = torch.from_numpy(batch["images"]).to(dtype)
    with torch.no_grad():
        _, heads = forward(net.eval(), images)
    out = {"codes_eval": heads["bbox_regression"], "scores_eval": heads["cls_logits"]}
    heads, of_class, of_box = losses_of(net.train(), images, batch, matched)
    (of_class + of_box).backward()
    out.update(codes=heads["bbox_regression"], scores=heads["cls_logits"], loss=of_class + of_box, loss_class=of_class,
               loss_box=of_box)
    out.update({f"grad.{n}": p.grad for n, p in net.named_parameters()})
    out.update({f"stat.{n}": b for n, b in net.named_buffers() if "running_" in n})
    return {n: v.detach().double().numpy() for n, v in out.items()}


def steps(arch, classes, state, batch, matched, dtype):
    net = network(arch, classes, state, dtype).train()
    images = torch.from_numpy(batch["images"]).to(dtype)
    sgd = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    for _ in range(STEPS):
        sgd.zero_grad()
        _, of_class, of_box = losses_of(net, images, batch, matched)
        (of_class + of_box).backward()
        sgd.step()
    return {n: t.detach().double().numpy() for n, t in net.state_dict().items() if "num_batches" not in n}


def found(net, images, codes, scores):
    """What torchvision finds in these heads: boxes as fractions, ymin first."""
    side = images.shape[-1]
    heads = {"bbox_regression": torch.from_numpy(codes), "cls_logits": torch.from_numpy(scores)}
    with torch.no_grad():
        features, _ = forward(net.eval(), images)
        rows = anchors_of(net, images, features)
        if hasattr(net, "postprocess_detections") and "retina" in net.__class__.__name__.lower():
            n = [9 * f.shape[2] * f.shape[3] for f in features]
            heads = {k: list(v.split(n, 1)) for k, v in heads.items()}
            rows = [list(a.split(n)) for a in rows]
        return net.postprocess_detections(heads, rows, [(side, side)] * len(images))


# --------------------------------------------------------------------------------- checks


def tandem_side(tandem, step, arch, classes, state, batch):
    save_file({n: np.ascontiguousarray(t.numpy()) for n, t in state.items() if "num_batches" not in n},
              tandem.file("w.safetensors"))
    save_file(batch, tandem.file("batch.safetensors"))
    done = subprocess.run([step, arch, "resnet50", str(classes), "w.safetensors", "batch.safetensors", "out.safetensors",
                           str(STEPS), repr(LR), repr(MOMENTUM), repr(DECAY)], cwd=tandem.folder, env=tandem.env,
                          text=True, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return tandem.out("out.safetensors")


def check_targets(judge, case, got, net, batch, matched):
    """Labels are equal, and box deltas are those of torchvision's coder."""
    images = torch.from_numpy(batch["images"])
    rows = anchors_of(net, images, forward(net, images)[0])
    worst_error, wrong, n = 0.0, 0, 0
    for i, (m, a, t) in enumerate(zip(matched, rows, truths(batch, images.shape[-1]))):
        positive = m >= 0
        labels = torch.where(positive, t["labels"][m.clamp(min=0)], torch.clamp(m + 1, max=0)).numpy()
        wrong += int((labels != got["labels"][i]).sum())
        n += int(positive.sum())
        codes = net_coder(net).encode_single(t["boxes"][m[positive]], a[positive]).numpy()
        worst_error = max(worst_error, off(got["targets"][i][positive.numpy()], codes))
    judge.fact(case, "labels of anchors", wrong == 0, f"{n} positive of {sum(len(m) for m in matched)}, {wrong} differ")
    judge.say(case, "targets", worst_error, "", LIMITS["targets"])


def net_coder(net):
    return net.box_coder


def same_boxes(got, want, tie=1e-6):
    """(largest error of a box, of a score, how many have no counterpart) of two lists of (label, score, box); scores within
    `tie` of the least one that was kept may be cut off."""
    box_error = score_error = 0.0
    left = list(range(len(want)))
    least = min((w[1] for w in want), default=0) + tie
    missing = 0
    for label, score, box in got:
        near = [k for k in left if want[k][0] == label and abs(want[k][1] - score) < 1e-4
                and np.abs(want[k][2] - box).max() < 1e-2]
        if not near:
            missing += score > least
            continue
        best = min(near, key=lambda k: np.abs(want[k][2] - box).max())
        box_error = max(box_error, float(np.abs(want[best][2] - box).max()))
        score_error = max(score_error, abs(want[best][1] - score))
        left.remove(best)
    return box_error, score_error, missing


def check_found(judge, case, got, net, batch):
    images = torch.from_numpy(batch["images"])
    want = found(net, images, got["codes_eval"], got["scores_eval"])
    worst_box = worst_score = 0.0
    missing = total = 0
    for i, w in enumerate(want):
        own = [(int(l), float(s), b) for l, s, b in zip(got["found.labels"][i], got["found.scores"][i],
                                                         got["found.boxes"][i]) if l > 0]
        theirs = [(int(l), float(s), b.numpy()[[1, 0, 3, 2]] / images.shape[-1])
                  for l, s, b in zip(w["labels"], w["scores"], w["boxes"])]
        judge.fact(case, f"boxes of image {i}", len(own) == len(theirs), f"{len(own)}, torchvision {len(theirs)}")
        box, score, lost = same_boxes(own, theirs)
        worst_box, worst_score, missing = max(worst_box, box), max(worst_score, score), missing + lost
        total += len(theirs)
    judge.fact(case, "boxes found", missing == 0, f"{total}, {missing} without a counterpart")
    judge.say(case, "boxes", worst_box, "", LIMITS["boxes"])
    judge.say(case, "scores", worst_score, "", LIMITS["scores"])


def compare(judge, case, got, want, peer):
    for name in ("codes_eval", "scores_eval", "codes", "scores"):
        judge.say(case, name, off(got[name], want[name]), "", LIMITS["heads"], off(peer[name], want[name]))
    for name in ("loss_class", "loss_box", "loss"):
        judge.say(case, name, off(got[name], want[name]), f"{float(want[name]):.6g}", LIMITS["loss"],
                  off(peer[name], want[name]))
    grads = {n: v for n, v in want.items() if n.startswith("grad.")}
    top = max(np.linalg.norm(v) for v in grads.values())
    tiny = {n for n, v in grads.items() if np.linalg.norm(v) < 1e-6 * top}  # a later norm takes it away: rounding
    real = {n: v for n, v in grads.items() if n not in tiny}
    error, where = worst(got, real)
    judge.say(case, f"{len(real)} gradients", error, where, LIMITS["gradients"], worst(peer, real)[0])
    judge.say(case, "gradients, L2", *l2(got, grads), LIMITS["all gradients"], l2(peer, grads)[0])
    judge.fact(case, f"{len(tiny)} gradients of 0", all(np.linalg.norm(got[n]) < 1e-5 * top for n in tiny))
    stats = {n: v for n, v in want.items() if n.startswith("stat.")}
    if stats:
        error, where = worst(got, stats)
        judge.say(case, f"{len(stats)} statistics", error, where, LIMITS["statistics"], worst(peer, stats)[0])


def check_steps(judge, case, got, want, peer):
    got = {n.removeprefix("after."): v for n, v in got.items() if n.startswith("after.") and "momentum." not in n}
    judge.fact(case, f"{len(want)} tensors", set(got) == set(want))
    error, where = l2(got, want)
    judge.say(case, f"weights @{STEPS}", error, where, LIMITS["weights"], l2(peer, want)[0])


def check_pass(judge, tandem, step, arch, classes, side, n):
    case = f"{arch[:12]} {side}"
    rng, state = np.random.default_rng(7), start(arch, classes)
    boxes, labels = objects(rng, n)
    batch = {"images": smooth(rng, n, side), "boxes": boxes, "classes": labels}
    net = network(arch, classes, state, torch.float32).eval()
    with torch.no_grad():
        matched = matches(net, torch.from_numpy(batch["images"]), batch)
    got = tandem_side(tandem, step, arch, classes, state, batch)
    check_targets(judge, case, got, net, batch, matched)
    want = one_pass(arch, classes, state, batch, matched, torch.float64)
    compare(judge, case, got, want, one_pass(arch, classes, state, batch, matched, torch.float32))
    check_found(judge, case, got, net, batch)
    want = steps(arch, classes, state, batch, matched, torch.float64)
    check_steps(judge, case, got, want, steps(arch, classes, state, batch, matched, torch.float32))


def check_names(judge, tandem, arch):
    """`init` files load strictly there; initial values by layer."""
    case = f"{arch[:12]} names"
    tandem.run("init", "--overwrite", "--arch", arch, "--seed", "1", "-o", tandem.file("init.safetensors"))
    nets.check_initial(judge, case, tandem.out("init.safetensors"), build(arch, 90))


def draw_folder(folder, rng, n=4):
    """Smooth random images of several sizes, PNG, with boxes: a COCO data set."""
    os.makedirs(os.path.join(folder, "val"))
    os.makedirs(os.path.join(folder, "annotations"))
    doc = {"images": [], "annotations": [], "categories": [{"id": i, "name": f"c{i}"} for i in range(1, 6)]}
    for i in range(n):
        w, h = int(rng.integers(90, 500)), int(rng.integers(90, 500))
        small = rng.integers(0, 256, (h // 24 + 2, w // 24 + 2, 3)).astype(np.uint8)
        Image.fromarray(small).resize((w, h), Image.BICUBIC).save(os.path.join(folder, "val", f"{i}.png"))
        doc["images"].append({"id": i, "file_name": f"{i}.png", "width": w, "height": h})
        for k in range(3):
            doc["annotations"].append({"id": 10 * i + k + 1, "image_id": i, "category_id": k + 1, "iscrowd": 0,
                                       "area": 900.0, "bbox": [10.0 + k, 12.0, 30.0, 30.0]})
    with open(os.path.join(folder, "annotations", "instances_val.json"), "w", encoding="utf8") as f:
        json.dump(doc, f)
    return doc


def check_images(judge, tandem, arch, classes):
    """torchvision's .pth on image files: resize, network and boxes of both programs."""
    case, state, rng = f"{arch[:12]} images", start(arch, classes), np.random.default_rng(5)
    net = build(arch, classes)
    if arch.startswith("retinanet"):
        state = early(state)
        for m in net.modules():
            m.eps = 0.0
    torch.save(state, tandem.file("theirs.pth"))
    net.load_state_dict(state, strict=not arch.startswith("retinanet"))  # without the norms' counters
    net.eval()
    folder = tandem.file("set")
    doc = draw_folder(folder, rng)
    tandem.run("evaluate", folder, "--arch", arch, "--num-classes", str(classes), "--image-size", str(IMAGE_SIDE), "--weights",
               tandem.file("theirs.pth"), "--detections", tandem.file("found.json"))
    with open(tandem.file("found.json"), encoding="utf8") as f:
        rows = json.load(f)
    worst_box = worst_score = 0.0
    missing = total = 0
    for one in doc["images"]:
        px = Image.open(os.path.join(folder, "val", one["file_name"])).convert("RGB")
        x = torch.from_numpy(np.asarray(px).copy()).permute(2, 0, 1).float() / 255
        with torch.no_grad():
            w = net([x])[0]
        top = max(one["width"], one["height"])
        theirs = [(int(l), float(s), b.numpy() / top) for l, s, b in zip(w["labels"], w["scores"], w["boxes"])]
        own = [(r["category_id"], r["score"], np.array([r["bbox"][0], r["bbox"][1], r["bbox"][0] + r["bbox"][2],
                                                        r["bbox"][1] + r["bbox"][3]]) / top)
               for r in rows if r["image_id"] == one["id"]]
        box, score, lost = same_boxes(own, theirs, 1e-4)
        worst_box, worst_score, missing, total = max(worst_box, box), max(worst_score, score), missing + lost, total + len(
            theirs)
    judge.fact(case, "boxes found", missing <= total // 200, f"{total}, {missing} without a counterpart")
    judge.say(case, "boxes", worst_box, "", 1e-2)
    judge.say(case, "scores", worst_score, "", 1e-4)
    check_onnx(judge, tandem, arch, classes, net, folder, doc)


def check_onnx(judge, tandem, arch, classes, net, folder, doc):
    """The ONNX file of torchvision's .pth in ONNX Runtime, on images as torchvision's transform makes them."""
    import onnxruntime

    tandem.run("convert", "--overwrite", "--arch", arch, "--num-classes", str(classes), "--image-size", str(IMAGE_SIDE),
               tandem.file("theirs.pth"), tandem.file("net.onnx"))
    session = onnxruntime.InferenceSession(tandem.file("net.onnx"), providers=["CPUExecutionProvider"])
    side, case = session.get_inputs()[0].shape[-1], f"{arch[:12]} onnx"
    names = ["detection_boxes", "detection_scores", "detection_classes", "num_detections"]
    worst_box = worst_score = 0.0
    missing = total = 0
    for one in doc["images"][:2]:
        px = np.asarray(Image.open(os.path.join(folder, "val", one["file_name"])).convert("RGB").resize((side, side)))
        x = torch.from_numpy(px.copy()).permute(2, 0, 1).float() / 255
        y = net.transform.normalize(x)[None]
        boxes, scores, labels, n = session.run(names, {session.get_inputs()[0].name: y.numpy()})
        own = [(int(labels[0, k]), float(scores[0, k]), boxes[0, k]) for k in range(int(n[0]))]
        with torch.no_grad():
            _, heads = forward(net, y)
        w = found(net, y, heads["bbox_regression"].numpy(), heads["cls_logits"].numpy())[0]
        theirs = [(int(l), float(s), b.numpy()[[1, 0, 3, 2]] / side) for l, s, b in zip(w["labels"], w["scores"], w["boxes"])]
        box, score, lost = same_boxes(own, theirs, 1e-4)
        worst_box, worst_score, missing, total = max(worst_box, box), max(worst_score, score), missing + lost, total + len(
            theirs)
        judge.fact(case, f"boxes of image {one['id']}", abs(len(own) - len(theirs)) <= len(theirs) // 100,
                   f"{len(own)}, torchvision {len(theirs)}")
    judge.fact(case, "boxes found", missing <= total // 200, f"{total}, {missing} without a counterpart")
    judge.say(case, "boxes", worst_box, "", 1e-2)
    judge.say(case, "scores", worst_score, "", 1e-4)


# --------------------------------------------------------------------------------- golden files

# name -> file, side of the suppression's anchors, side and batch of the pass
FILES = {"ssdlite320_mobilenet_v3_large": ("ssdlite.safetensors", 64, 128, 4),
         "retinanet_resnet50_fpn": ("retinanet.safetensors", 64, 64, 4)}
HEADS_OF, SAMPLES, CLASSES = 13, 8, 5


def filled(arch, side):
    """A state by formula: element i of a tensor is from fill.uniform(name)."""
    state = build(arch, CLASSES).state_dict()
    for name, x in state.items():
        if x.dtype != torch.float32:
            continue
        u = fill.uniform(name, x.numel()).reshape(x.shape)
        s, norm = 2 * u - 1, f"{name.rsplit('.', 1)[0]}.running_mean" in state
        if name.endswith("running_mean"):
            v = 0.1 * s
        elif name.endswith("running_var"):
            v = 0.5 + u
        elif x.dim() == 4:
            v = s * (0.3 if name.startswith("head.") else 1) * np.sqrt(3.0 / (x.numel() / x.shape[0]))
        elif not norm:
            v = 0.1 * s
        else:
            v = 0.3 + 0.2 * u if name.endswith("weight") else 2.6 + 0.4 * u
        x.copy_(torch.from_numpy(v.astype(np.float32)))
    return state


def samples_of(v):
    """The norm, and elements (k * 2654435761) mod n."""
    flat = v.reshape(-1)
    return np.array([np.linalg.norm(flat), *(flat[k * 2654435761 % flat.size] for k in range(SAMPLES))])


def rows_of(arch, net, batch, side):
    """Positives as (image, anchor, label) and their box deltas; some anchors, ymin first."""
    x = torch.zeros(len(batch["boxes"]), 3, side, side)
    with torch.no_grad():
        anchors = anchors_of(net, x, forward(net, x)[0])
        matched = matches(net, x, batch)
    rows, deltas = [], []
    for i, (m, a, t) in enumerate(zip(matched, anchors, truths(batch, side))):
        codes = net_coder(net).encode_single(t["boxes"][m.clamp(min=0)], a).numpy()
        for k in np.flatnonzero(m.numpy() != -1):
            rows.append((i, k, int(t["labels"][m[k]]) if m[k] >= 0 else int(m[k]) + 1))
            deltas.append(codes[k])
    return np.array(rows, np.int64), np.array(deltas, np.float32), anchors[0].numpy()[::7 if arch.startswith("ssdlite") else 97, [1, 0, 3, 2]], matched


def write(arch):
    file, nms_side, side, n = FILES[arch]
    rng = np.random.default_rng(11)
    boxes, classes = objects(rng, n)
    batch = {"boxes": boxes, "classes": classes}
    state = filled(arch, side)
    net = network(arch, CLASSES, state, torch.float32).eval()
    out = dict(batch)
    usual = 320 if arch.startswith("ssdlite") else 800
    out["match.rows"], out["match.deltas"], out["anchors"], _ = rows_of(arch, net, batch, usual)

    x = torch.zeros(1, 3, nms_side, nms_side)
    with torch.no_grad():
        count = len(anchors_of(net, x, forward(net, x)[0])[0])
    codes = rng.normal(0, 1, (1, count, 4)).astype(np.float32)
    columns = CLASSES + 1
    scores = rng.normal(0, 2, (1, count, columns)).astype(np.float32)
    if arch.startswith("retinanet"):
        scores[..., 0] = -9  # torchvision's RetinaNet would find objects of the background's column
    w = found(net, x, codes, scores)[0]
    out.update({"nms.codes": codes[0], "nms.scores": scores[0], "nms.found.scores": w["scores"].numpy(),
                "nms.found.boxes": w["boxes"].numpy()[:, [1, 0, 3, 2]] / np.float32(nms_side),
                "nms.found.labels": w["labels"].numpy()})

    batch["images"] = fill.images("", n, side)
    matched = rows_of(arch, net, batch, side)[3]
    one = one_pass(arch, CLASSES, state, batch, matched, torch.float64)
    for name in ("codes_eval", "scores_eval"):
        out[name] = one[name].reshape(-1, one[name].shape[-1])[::HEADS_OF]
    for name in ("loss", "loss_class", "loss_box"):
        out[name] = one[name].reshape(1)
    out.update({k: samples_of(v) for k, v in one.items() if k.startswith("grad.")})
    os.makedirs(GOLDEN, exist_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, os.path.join(GOLDEN, file))
    print(f"{file}: {os.path.getsize(os.path.join(GOLDEN, file))} bytes, loss {float(one['loss']):.6g}, "
          f"{len(out['match.rows'])} matches, {len(w['scores'])} boxes")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tandem", default="build/tandem")
    p.add_argument("--step", help="tests/detector_step; default: beside the command")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--arch", action="append", choices=list(CASES), help="default: all; may be repeated")
    p.add_argument("--write", action="store_true", help="make the golden files")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    step = os.path.abspath(o.step or os.path.join(os.path.dirname(o.tandem), "tests", "detector_step"))
    if o.write:
        for arch in o.arch or CASES:
            write(arch)
        return 0
    judge = Judge()
    for arch in o.arch or CASES:
        with tempfile.TemporaryDirectory() as folder:
            tandem = Tandem(o.tandem, folder, o.threads)
            check_names(judge, tandem, arch)
            for side, n in CASES[arch]:
                check_pass(judge, tandem, step, arch, 5, side, n)
            check_images(judge, tandem, arch, 5)
    print(f"{judge.failed} checks failed" if judge.failed else "all checks passed")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())

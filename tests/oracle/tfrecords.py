#!/usr/bin/env python3
"""TFRecords written by TensorFlow against the folder or the annotation file that they were made of.

    pip install tensorflow
    tfrecords.py --tandem build/tandem            final weights and metrics from both
    tfrecords.py --write tests/fuzz/corpus/records

ImageNet's records have the features of TensorFlow's build_imagenet_data.py, COCO's those of the Object Detection API's
create_coco_tf_record.py (without masks).
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import tensorflow as tf


def feature(value):
    if isinstance(value, (bytes, str)):
        value = [value]
    if not isinstance(value, list):
        value = [value]
    if value and isinstance(value[0], str):
        value = [v.encode() for v in value]
    if value and isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    if value and isinstance(value[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def write(path, examples, compression=None):
    with tf.io.TFRecordWriter(path, compression) as out:
        for e in examples:
            features = {k: v if isinstance(v, tf.train.Feature) else feature(v) for k, v in e.items()}
            out.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def imagenet(folder, split):
    names = sorted(os.listdir(f"{folder}/{split}"))
    for label, name in enumerate(names, 1):
        for file in sorted(os.listdir(f"{folder}/{split}/{name}")):
            yield {"image/height": 32, "image/width": 32, "image/colorspace": "RGB", "image/channels": 3,
                   "image/class/label": label, "image/class/synset": name, "image/class/text": f"a {name}",
                   "image/object/bbox/xmin": [0.1, 0.2], "image/object/bbox/xmax": [0.5, 0.6],
                   "image/object/bbox/ymin": [0.1, 0.2], "image/object/bbox/ymax": [0.5, 0.6],
                   "image/object/bbox/label": [label, label], "image/format": "JPEG", "image/filename": file,
                   "image/encoded": read(f"{folder}/{split}/{name}/{file}")}


def floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def texts(values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))


def ints(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def coco(folder, split, has_labels):
    with open(f"{folder}/annotations/instances_{split}.json") as f:
        doc = json.load(f)
    names = {c["id"]: c["name"] for c in doc["categories"]}
    for image in doc["images"]:
        objects = [a for a in doc["annotations"] if a["image_id"] == image["id"]]
        w, h = image["width"], image["height"]
        data = read(f"{folder}/{split}/{image['file_name']}")
        boxes = [a["bbox"] for a in objects]
        e = {"image/height": h, "image/width": w, "image/filename": image["file_name"],
             "image/source_id": str(image["id"]), "image/key/sha256": hashlib.sha256(data).hexdigest(),
             "image/encoded": data, "image/format": "jpeg",
             "image/object/bbox/xmin": floats([float(x) / w for x, _, _, _ in boxes]),
             "image/object/bbox/xmax": floats([float(x + bw) / w for x, _, bw, _ in boxes]),
             "image/object/bbox/ymin": floats([float(y) / h for _, y, _, _ in boxes]),
             "image/object/bbox/ymax": floats([float(y + bh) / h for _, y, _, bh in boxes]),
             "image/object/class/text": texts([names[a["category_id"]] for a in objects]),
             "image/object/is_crowd": ints([a["iscrowd"] for a in objects]),
             "image/object/area": floats([a["area"] for a in objects])}
        if has_labels:
            e["image/object/class/label"] = ints([a["category_id"] for a in objects])
        yield e


def payload(path):
    data = read(path)
    return data[8 + int.from_bytes(data[:8], "little"):]


class Comparison:
    def __init__(self, tandem):
        self.tandem, self.failed = tandem, 0

    def run(self, *words):
        done = subprocess.run([self.tandem, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"tandem {' '.join(words)}: {done.stderr}")
        return done.stdout

    def say(self, what, ok):
        self.failed += not ok
        print("ok  " if ok else "FAIL", what, flush=True)

    def weights(self, data, options):
        self.run("train", data, *options, "--no-checkpoints", "--final-weights", "w.safetensors", "--workspace", "w",
                 "--overwrite", "--threads", "1", "--seed", "1")
        return payload("w.safetensors")

    def metrics(self, data):
        out = json.loads(self.run("evaluate", data, "--weights", "w.safetensors", "--threads", "1", "--json"))
        return {k: v for k, v in out.items() if k.startswith("AP") or k.startswith("AR") or k in ("loss", "top1", "n")}

    def compare(self, name, original, records, options):
        same = self.weights(original, options)
        wanted = self.metrics(original)
        self.say(f"{name}: metrics {wanted}", wanted == self.metrics(records))
        self.say(f"{name}: weights, {len(same)} bytes", same == self.weights(records, options))


def make_sets(c):
    c.run("dataset", "draw", "set", "--classes", "4", "--train", "64", "--val", "20", "--size", "32")
    c.run("dataset", "draw", "things", "--boxes", "--train", "12", "--val", "6", "--size", "96")
    os.mkdir("tf")
    for split, name, shards in (("train", "train", 3), ("val", "validation", 2)):
        examples = list(imagenet("set", split))
        per = -(-len(examples) // shards)
        for i in range(shards):
            write(f"tf/{name}-{i:05d}-of-{shards:05d}", examples[i * per:(i + 1) * per])
    for kind in ("labels", "texts"):
        os.mkdir(kind)
        for split in ("train", "val"):
            write(f"{kind}/coco_{split}.record-00000-of-00001", coco("things", split, kind == "labels"))


def corpus(folder):
    os.makedirs(folder, exist_ok=True)
    image = b"\xff\xd8 no image"
    write(f"{folder}/classes", [{"image/encoded": image, "image/class/label": k, "image/class/text": f"class {k}",
                                 "image/filename": f"{k}.jpg"} for k in (1, 3, 2)])
    box = {"image/encoded": image, "image/height": 48, "image/width": 64, "image/source_id": "139",
           "image/object/bbox/xmin": [0.1, 0.2], "image/object/bbox/xmax": [0.5, 1.0],
           "image/object/bbox/ymin": [0.0, 0.2], "image/object/bbox/ymax": [0.5, 0.6],
           "image/object/class/text": ["person", "toothbrush"], "image/object/is_crowd": [0, 1],
           "image/object/area": [100.0, 200.5]}
    write(f"{folder}/texts", [box, dict(box, **{"image/source_id": "7"})])
    write(f"{folder}/labels", [dict(box, **{"image/object/class/label": [1, 90]})])
    write(f"{folder}/gzip", [box], "GZIP")
    with open(f"{folder}/cut", "wb") as f:
        f.write(read(f"{folder}/labels")[:-7])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/tandem")
    parser.add_argument("--write", metavar="FOLDER")
    args = parser.parse_args()
    if args.write:
        corpus(args.write)
        return 0
    c = Comparison(os.path.abspath(args.tandem))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_sets(c)
        c.compare("ImageNet's records", "set", "tf", ["--arch", "resnet18", "--image-size", "32", "-b", "8", "--epochs",
                                                     "1", "--lr", "0.01"])
        for kind in ("labels", "texts"):
            c.compare(f"COCO's records, {kind}", "things", kind,
                      ["--arch", "ssd320", "--backbone", "resnet18", "--image-size", "160", "-b", "4", "--lr", "0.01",
                       "--num-train-steps", "3"])
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())

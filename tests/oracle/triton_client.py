#!/usr/bin/env python3
"""The server against tritonclient, a client of the inference protocol that others wrote.

    pip install 'tritonclient[http]==2.73.0'
    triton_client.py --tandem build/tandem

Starts `tandem serve` on a free port of 127.0.0.1 with fresh weights and makes tritonclient's calls with their defaults:
health, metadata, configuration, statistics, the repository's index, inference in every combination of JSON, binary data,
classification and compression, a bearer token. Prints one line for each call; the exit code is 1 when one fails.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

CLASSES, SIZE, TOKEN = 8, 32, "a-token-for-this-test"


class Checks:
    def __init__(self):
        self.bad = 0

    def run(self, name, call):
        try:
            call()
            print(f"ok      {name}")
        except Exception as e:  # every kind of failure is a finding
            self.bad += 1
            print(f"FAILED  {name}: {type(e).__name__}: {e}")


def want(condition, what):
    if not condition:
        raise AssertionError(what)


def refused(call, status, words):
    try:
        call()
    except InferenceServerException as e:
        want(e.status() == str(status) and words in e.message(), f"refused with {e.status()}: {e.message()}")
        return
    raise AssertionError("accepted")


def descriptions(checks, client):
    def server():
        meta = client.get_server_metadata()
        want(meta["name"] == "tandem" and "statistics" in meta["extensions"], meta)

    def config():
        c = client.get_model_config("resnet18")
        want(c["name"] == "resnet18" and c["max_batch_size"] > 0, c)
        want(c["input"] == [{"name": "images", "data_type": "TYPE_FP32", "dims": [3, SIZE, SIZE]}], c["input"])
        want([o["name"] for o in c["output"]] == ["logits", "probabilities"], c["output"])
        want(client.get_model_config("resnet18", "1") == c, "the version's configuration is another one")

    def index():
        want(client.get_model_repository_index() == [{"name": "resnet18", "version": "1", "state": "READY", "reason": ""}],
             client.get_model_repository_index())

    checks.run("is_server_live", lambda: want(client.is_server_live(), "not live"))
    checks.run("is_server_ready", lambda: want(client.is_server_ready(), "not ready"))
    checks.run("is_model_ready", lambda: want(client.is_model_ready("resnet18"), "not ready"))
    checks.run("is_model_ready, another", lambda: want(not client.is_model_ready("other"), "ready"))
    checks.run("get_server_metadata", server)
    checks.run("get_model_metadata",
               lambda: want(client.get_model_metadata("resnet18")["inputs"][0]["shape"] == [-1, 3, SIZE, SIZE], "shape"))
    checks.run("get_model_config", config)
    checks.run("get_model_repository_index", index)
    checks.run("load_model", lambda: refused(lambda: client.load_model("resnet18"), 501, "one model"))
    checks.run("unload_model", lambda: refused(lambda: client.unload_model("resnet18"), 501, "one model"))


def inference(checks, client):
    rng = numpy.random.default_rng(1)
    images = rng.standard_normal((2, 3, SIZE, SIZE)).astype(numpy.float32)
    first = {}

    def infer(binary_in=True, outputs=None, **more):
        x = http.InferInput("images", images.shape, "FP32")
        x.set_data_from_numpy(images, binary_data=binary_in)
        return client.infer("resnet18", [x], outputs=outputs, **more)

    def defaults():
        r = infer(request_id="seven")
        first["logits"], first["probabilities"] = r.as_numpy("logits"), r.as_numpy("probabilities")
        want(first["logits"].shape == (2, CLASSES), first["logits"].shape)
        want(numpy.allclose(first["probabilities"].sum(1), 1, atol=1e-5), "probabilities do not sum to 1")
        want(r.get_response()["id"] == "seven", "the id is lost")

    def same(r):
        for name in first:
            want(numpy.allclose(r.as_numpy(name), first[name], atol=1e-5), f"{name} differ")

    def both(binary):
        return [http.InferRequestedOutput(name, binary_data=binary) for name in ("logits", "probabilities")]

    def classes(binary):
        r = infer(outputs=[http.InferRequestedOutput("probabilities", binary_data=binary, class_count=3),
                           http.InferRequestedOutput("logits", binary_data=True)])
        rows = r.as_numpy("probabilities")
        want(rows.shape == (2, 3), rows.shape)
        for row, expected in zip(rows, first["probabilities"]):
            words = [w if isinstance(w, str) else w.decode() for w in row]
            want([int(w.split(":")[1]) for w in words] == list(numpy.argsort(-expected)[:3]), words)
            want(abs(float(words[0].split(":")[0]) - expected.max()) < 1e-5, words)
        want(numpy.allclose(r.as_numpy("logits"), first["logits"], atol=1e-5), "the logits behind them differ")

    checks.run("infer", defaults)
    checks.run("infer, JSON in", lambda: same(infer(binary_in=False)))
    for binary in (True, False):
        kind = "binary" if binary else "JSON"
        checks.run(f"infer, {kind} out", lambda b=binary: same(infer(outputs=both(b))))
        checks.run(f"infer, classification, {kind} out", lambda b=binary: classes(b))
    for how in ("gzip", "deflate"):
        checks.run(f"infer, request {how}", lambda h=how: same(infer(request_compression_algorithm=h)))
        checks.run(f"infer, JSON request {how}",
                   lambda h=how: same(infer(binary_in=False, request_compression_algorithm=h)))
        checks.run(f"infer, response {how}", lambda h=how: same(infer(response_compression_algorithm=h)))
    checks.run("infer, version 1", lambda: same(infer(model_version="1")))
    checks.run("async_infer", lambda: same(async_result(client, images)))


def async_result(client, images):
    x = http.InferInput("images", images.shape, "FP32")
    x.set_data_from_numpy(images)
    return client.async_infer("resnet18", [x]).get_result()


def statistics(checks, client):
    def of(answer):
        s, = answer["model_stats"]
        want(s["name"] == "resnet18" and s["version"] == "1", s)
        success = s["inference_stats"]["success"]
        want(success["count"] > 0 and success["ns"] > 0 and s["inference_count"] >= 2 * success["count"], s)
        want(s["execution_count"] > 0 and sum(b["compute_infer"]["count"] for b in s["batch_stats"]) == s["execution_count"], s)

    checks.run("get_inference_statistics", lambda: of(client.get_inference_statistics()))
    checks.run("get_inference_statistics, of a model", lambda: of(client.get_inference_statistics("resnet18")))
    checks.run("get_inference_statistics, of a version", lambda: of(client.get_inference_statistics("resnet18", "1")))


def serve(tandem, *options):
    server = subprocess.Popen([tandem, "serve", "--weights", "w.safetensors", "--port", "0", "--json", *options],
                              stdout=subprocess.PIPE, text=True)
    return server, json.loads(server.stdout.readline())["port"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/tandem")
    args = parser.parse_args()
    tandem, checks = os.path.abspath(args.tandem), Checks()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        subprocess.run([tandem, "init", "--overwrite", "--arch", "resnet18", "--image-size", str(SIZE), "--num-classes", str(CLASSES),
                        "--seed", "1", "-o", "w.safetensors"], check=True, capture_output=True)
        server, port = serve(tandem)
        client = http.InferenceServerClient(f"127.0.0.1:{port}")
        descriptions(checks, client)
        inference(checks, client)
        statistics(checks, client)
        server.terminate()
        checks.run("SIGTERM", lambda: want(server.wait(60) == 0, server.returncode))

        with open("token", "w") as f:
            f.write(TOKEN + "\n")
        server, port = serve(tandem, "--token-file", "token")
        client = http.InferenceServerClient(f"127.0.0.1:{port}")
        checks.run("is_server_live without the token", lambda: want(client.is_server_live(), "not live"))
        checks.run("metadata without the token", lambda: refused(client.get_server_metadata, 401, "token"))
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        checks.run("metadata with the token", lambda: want(client.get_server_metadata(headers=bearer)["name"] == "tandem", ""))
        server.terminate()
        server.wait(60)
    return 1 if checks.bad else 0


if __name__ == "__main__":
    sys.exit(main())

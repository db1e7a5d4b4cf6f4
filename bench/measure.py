"""Run a program, watch it, and say in one line what went wrong."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PACKAGES = {  # module -> the package that brings it
    "torch": ("torch",), "torchvision": ("torchvision",), "timm": ("timm",), "onnx": ("onnx",),
    "tensorflow": ("tensorflow-cpu", "tensorflow"), "onnxruntime": ("onnxruntime",), "openvino": ("openvino",),
    "nvidia.dali": ("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
}
PROBE = """
import importlib.metadata as m, json, sys, sysconfig
found = {}
for module, names in json.loads(sys.argv[1]).items():
    for name in names:
        try:
            found[module] = [name, m.version(name)]
            break
        except m.PackageNotFoundError:
            pass
print(json.dumps({"found": found, "site": sysconfig.get_path("purelib")}))
"""


class Failed(Exception):
    """A program did not give a result; the text is one line."""


def probe(python):
    """module -> (package, version) of what an environment has, and its site-packages folder"""
    try:
        result = subprocess.run([python, "-c", PROBE, json.dumps(PACKAGES)], capture_output=True, text=True)
    except OSError as error:
        raise SystemExit(f"'{python}': {error.strerror}")
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        raise SystemExit(f"'{python}' is no Python: {last_line(result.stderr)}")
    return answer["found"], answer["site"]


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"


def reason(code, text):
    """Why a program ended, in one line: what looks like an error, else the last line."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}: {last_line(text)}"
    errors = [line for line in text.splitlines() if "rror:" in line or line.startswith("error")]
    return f"exit {code}: {last_line(errors[-1] if errors else text)}"


def stop(child):
    """End a program and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def busy_s():
    """Seconds that this machine's processors were taken, all of them together; what a hypervisor took counts."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def run(command, threads, limit_s):
    """Result object of a program, with 'peak', its peak memory as the kernel saw it (of all its processes, if it
    has several and says so; of Tandem before it measures the bound, with a second program), and 'others', the share of the processors that
    others took meanwhile."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="")
    is_late, start, start_busy = False, time.monotonic(), busy_s()

    def alarm(*_):
        nonlocal is_late
        is_late = True
        stop(child)

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env,
                                     start_new_session=True)
        except OSError as error:
            raise Failed(f"'{command[0]}': {error.strerror}")
        before = signal.signal(signal.SIGALRM, alarm)
        signal.alarm(limit_s)
        try:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            stop(child)
        others = busy_s() - start_busy - usage.ru_utime - usage.ru_stime
        others = max(0.0, others / ((time.monotonic() - start) * os.cpu_count()))
        out.seek(0), err.seek(0)
        text, errors = out.read(), err.read()
    if is_late:
        raise Failed(f"not done after {limit_s} s")
    if child.returncode != 0:
        raise Failed(reason(child.returncode, errors))
    try:
        result = json.loads(text[text.index("{"):])
        result["images_per_s"]["median"] + 0
    except (ValueError, KeyError, TypeError):
        raise Failed(f"no result in its output: {last_line(text)}")
    result["others"] = others
    result["peak"] = result.get("all_processes_bytes") or result.get("peak_memory_bytes", usage.ru_maxrss * 1024)
    return result


@contextlib.contextmanager
def neighbours(n):
    """`n` processes that spin, while the block runs."""
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def cpu():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown CPU")


def mean_rate(result):
    """Images per second over all steps together, where the program tells; stalls count."""
    average = result.get("latency_ms", {}).get("avg")
    return 1e3 * result["batch_size"] / average if average else result["images_per_s"]["median"]


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"

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


def busy_s():
    """Seconds that this machine's processors were taken, all of them together; what a hypervisor took counts."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Process:
    """A program that was started; `command` is a list, `threads` what OMP_NUM_THREADS says."""

    def __init__(self, command, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="")
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        try:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, env=env,
                                          start_new_session=True)
        except OSError as error:
            raise Failed(f"'{command[0]}': {error.strerror}")
        self.usage = None

    def wait(self, options=0):
        """True if the process has ended; without WNOHANG it has."""
        if self.usage is None:
            pid, status, usage = os.wait4(self.child.pid, options)
            if pid:
                self.child.returncode, self.usage = os.waitstatus_to_exitcode(status), usage
        return self.usage is not None

    def signal(self, number):
        """Send a signal to all processes of its session."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat") as f:
                    session = int(f.read().rsplit(")", 1)[1].split()[3])
                if session == self.child.pid:
                    os.kill(int(name), number)

    def stop(self):
        """End the program and all that it started."""
        self.signal(signal.SIGKILL)
        self.wait()

    def result(self):
        """What it printed, with 'peak', its peak memory as the kernel saw it (of all its processes, if it has several and says so;
        of Tandem before it measures the bound, with a second program)."""
        self.out.seek(0), self.err.seek(0)
        text, errors = self.out.read(), self.err.read()
        if self.child.returncode != 0:
            raise Failed(reason(self.child.returncode, errors))
        try:
            result = json.loads(text[text.index("{"):])
            result["images_per_s"]["median"] + 0
        except (ValueError, KeyError, TypeError):
            raise Failed(f"no result in its output: {last_line(text)}")
        result["peak"] = result.get("all_processes_bytes") or result.get("peak_memory_bytes", self.usage.ru_maxrss * 1024)
        return result


def others_share(start, start_busy, ended):
    """Share of the processors that others took since `start`, when `start_busy` seconds had been taken."""
    others = busy_s() - start_busy - sum(p.usage.ru_utime + p.usage.ru_stime for p in ended)
    return max(0.0, others / ((time.monotonic() - start) * os.cpu_count()))


def run(command, threads, limit_s):
    """Result object of a program, with 'others', the share of the processors that others took meanwhile."""
    start, start_busy = time.monotonic(), busy_s()
    process = Process(command, threads)
    try:
        is_late = not wait_until(process, start + limit_s)
    finally:
        process.stop()
    if is_late:
        raise Failed(f"not done after {limit_s} s")
    return process.result() | {"others": others_share(start, start_busy, [process])}


ALONE_S = 4  # at the start: to compile, and to time kernels undisturbed


def run_in_slices(commands, threads, limit_s, slice_s):
    """name -> result object or Failed, of programs that take the machine in turns, `slice_s` seconds each.

    All but one are stopped.  A stop lengthens one step, so that medians hold and the slowest steps do not: figures that stops
    change are left out.  `limit_s` counts for all of them together, times their number."""
    running, failed, done = {}, {}, {}
    start, start_busy = time.monotonic(), busy_s()
    end = start + limit_s * len(commands)
    try:
        for name, command in commands.items():
            try:
                running[name] = Process(command, threads)
            except Failed as error:
                failed[name] = error
                continue
            wait_until(running[name], time.monotonic() + ALONE_S)
            running[name].signal(signal.SIGSTOP)
        while running and time.monotonic() < end:
            for name in list(running):
                running[name].signal(signal.SIGCONT)
                if wait_until(running[name], time.monotonic() + slice_s):
                    done[name] = running.pop(name)
                else:
                    running[name].signal(signal.SIGSTOP)
    finally:
        for process in running.values():
            process.stop()
    failed.update((name, Failed(f"not done after {end - start:.0f} s of all")) for name in running)
    others = others_share(start, start_busy, [*done.values(), *running.values()])
    for name, process in done.items():
        try:
            result = process.result()
        except Failed as error:
            failed[name] = error
            continue
        for key in ("p95", "p99", "max", "avg"):
            result.get("latency_ms", {}).pop(key, None)
        done[name] = result | {"others": others, "time_to_first_step_s": None}
    return {name: failed.get(name, done.get(name)) for name in commands}


def wait_until(process, end):
    """True if the process has ended by then."""
    while not process.wait(os.WNOHANG):
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


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

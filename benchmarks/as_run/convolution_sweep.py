"""Thin 3 × 3 convolutions: right against float64? how fast, beside cuDNN? Best first; then whole steps.

    PYTHONPATH=src:benchmarks python conv-sweep.py [--seconds 80] [--out conv-sweep.json]

µs, each the median of replays of a CUDA graph with many calls, whose inputs change so that the L2 does not hold them.
Variants are compiled by processes side by side first; a variant that takes the CUDA context with it costs itself only.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from unittest import mock

BEGIN = float(os.environ.setdefault("SWEEP_BEGAN", str(time.time())))

import torch
from torch.nn import functional as F

from ringfence.weak.networks.fast import middle
from ringfence.weak.networks.fast.middle import Sums, Walk, Wins

# (batch, channels in, channels out, side); 48 -> 16 is what the synthetic net really has (16 + 32 joined)
SHAPES = [
    (8, 16, 16, 256), (8, 48, 16, 256), (16, 32, 32, 256), (16, 64, 32, 256), (8, 16, 32, 128), (8, 32, 32, 128),
    (8, 64, 32, 128), (16, 32, 32, 128), (16, 64, 32, 128), (32, 16, 16, 256), (32, 48, 16, 256),
    (8, 32, 16, 256), (32, 32, 16, 256),
]  # fmt: skip
PAIRS = list(dict.fromkeys((one[1], one[2]) for one in SHAPES))
KINDS = ("forward", "input", "weight")
WALKS = [
    Walk(8, 128, 4, 1, False), Walk(8, 128, 4, 1, True), Walk(8, 64, 4, 1, False), Walk(8, 64, 4, 1, True),
    Walk(16, 64, 4, 1, False), Walk(8, 64, 2, 1, False), Walk(8, 32, 1, 1, False), Walk(16, 128, 4, 3, False),
    Walk(16, 64, 4, 3, False), Walk(16, 64, 4, 2, True), Walk(8, 128, 8, 1, True), Walk(4, 64, 4, 1, True),
    Walk(16, 64, 2, 2, False), Walk(16, 64, 4, 2, False), Walk(8, 128, 8, 1, False),
]  # fmt: skip
NARROWER = [Walk(8, 128, 4, 1, True, 16), Walk(8, 64, 4, 1, False, 32), Walk(8, 128, 4, 1, False, 32)]
"""For 48 and 64 outputs: not all by one program."""
SUMS = [
    Sums(128, 16, 16, 4, 1, 528), Sums(64, 16, 16, 4, 1, 528), Sums(64, 16, 16, 4, 1, 1056),
    Sums(64, 16, 16, 4, 3, 528), Sums(64, 16, 16, 4, 1, 2112), Sums(64, 32, 32, 8, 1, 264),
    Sums(64, 32, 32, 8, 3, 264), Sums(64, 16, 32, 4, 1, 528), Sums(64, 32, 32, 4, 1, 264),
    Sums(64, 32, 16, 4, 1, 528), Sums(64, 32, 16, 4, 3, 528), Sums(64, 16, 16, 2, 1, 1056),
]  # fmt: skip
FEW = {(32, 16): 5}
"""Variants of pairs that neither network has."""
CHECKED = ((3, 37, 70), (2, 16, 256))
"""Batch and size, against float64."""


def ends(kind, channels, outputs):
    """Of a walk: what it reads and what it makes."""
    return (channels, outputs) if kind == "forward" else (outputs, channels)


def variants(kind, channels, outputs):
    """The default first; each once."""
    if kind == "weight":
        found = [middle.sums(channels, outputs), *SUMS]
        found = [dataclasses.replace(one, channels=min(one.channels, 1 << (channels - 1).bit_length()),
                                     outputs=min(one.outputs, 1 << (outputs - 1).bit_length())) for one in found]
        return list(dict.fromkeys(found))[: FEW.get((channels, outputs))]
    read, made = ends(kind, channels, outputs)
    found = [middle.walk(read, made), *WALKS, *(NARROWER if made > 32 else [])]
    found = found[:1] + [one for one in found if not spills(one, read, made)]
    return list(dict.fromkeys(found))[: FEW.get((channels, outputs))]


def spills(how, read, made):
    """As compiled for sm_90 by Triton 3.9."""
    wide = how.columns == 128 and how.warps == 4
    if min(how.outputs, made) > 32 and (how.warps < 4 or wide):
        return True
    return (wide and how.folded and read > 16) or (read > 32 and (how.folded or wide or (how.warps < 4 and made > 16)))


def apply(kind, how, x, dy, rounded, weight):
    if kind == "forward":
        return middle.convolution(x, rounded, how)
    if kind == "input":
        return middle.convolution(dy, rounded, how, flipped=True)
    return middle.weight_gradient(x, dy, weight, how)


def theirs(kind, x, dy, rounded, weight):
    if kind == "forward":
        return F.conv2d(x, rounded, padding=1)
    which = [kind == "input", kind == "weight", False]
    return torch.ops.aten.convolution_backward(dy, x, rounded, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, which)[0 if kind == "input" else 1]


def tensors(batch, channels, outputs, size, dtype, joined=False):
    last = {"memory_format": torch.channels_last}
    x = torch.randn(batch, channels, *size, device="cuda").to(dtype).to(**last)
    dy = torch.randn(batch, outputs + (16 if joined else 0), *size, device="cuda").to(dtype).to(**last)[:, :outputs]
    weight = (torch.randn(outputs, channels, 3, 3, device="cuda") / math.sqrt(9 * channels)).to(**last)
    return x, dy, weight.to(dtype), weight


_truths = {}


def check(kind, how, channels, outputs, dtype=torch.bfloat16):
    """The largest error of a norm; raises if it is more than rounding's, or not the same twice."""
    worst = 0.0
    for number, (batch, *size) in enumerate(CHECKED):
        key = (channels, outputs, dtype, number)
        if key not in _truths:
            given = tensors(batch, channels, outputs, size, dtype, joined=number == 0)
            exact = [given[0].double().requires_grad_(), given[2].double().requires_grad_()]
            y = F.conv2d(*exact, padding=1)
            dx, dw = torch.autograd.grad(y, exact, given[1].double())
            _truths[key] = given, {"forward": y.detach(), "input": dx, "weight": dw}
        given, truth = _truths[key]
        found = apply(kind, how, *given)
        error = float((found.double() - truth[kind]).norm() / truth[kind].norm())
        limit = 2e-5 if kind == "weight" else {torch.bfloat16: 3e-3, torch.float16: 4e-4}[dtype]
        if not error <= limit:
            raise AssertionError(f"error {error:.1e} at {size}")
        if not torch.equal(found, apply(kind, how, *given)):
            raise AssertionError("not the same twice")
        worst = max(worst, error)
    return worst


def microseconds(function, sets, calls=12, rounds=5):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function(*sets[0])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(calls):
            function(*sets[number % len(sets)])
    times = []
    for _ in range(rounds + 1):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(1e3 * first.elapsed_time(last) / calls)
    return statistics.median(times[1:])


def compile_some(number, workers):
    """Every variant once, on small maps whose sides are multiples of 16 as the real ones are."""
    jobs = [(kind, pair, how) for pair in PAIRS for kind in KINDS for how in variants(kind, *pair)]
    for kind, (channels, outputs), how in jobs[number::workers]:
        try:
            apply(kind, how, *tensors(1, channels, outputs, (16, 32), torch.bfloat16))
        except Exception:
            pass
    torch.cuda.synchronize()


def warm_step(name):
    from network_step import NETWORKS, measured

    measured(NETWORKS[name][0], 8, True, 1)


def child(options):
    """Measure what has not been begun yet, line by line."""
    begun = set()
    with open(options.lines, encoding="utf-8") as file:
        begun = {json.loads(line)["key"] for line in file}
    out = open(options.lines, "a", encoding="utf-8", buffering=1)
    write = lambda **row: out.write(json.dumps(row) + "\n")  # noqa: E731
    torch.manual_seed(0)
    wrong = set()
    for shape in SHAPES:
        batch, channels, outputs, side = shape
        size = 2 * batch * side * side * (channels + outputs)
        sets = None
        for kind in KINDS:
            for place, how in enumerate(["cuDNN", *variants(kind, channels, outputs)]):
                key = f"{shape} {kind} {how}"
                if key in begun or (kind, channels, outputs, how) in wrong or (place > 1 and time.time() - BEGIN > options.until):
                    continue
                write(key=key, begun=True)
                try:
                    if sets is None:
                        sets = [tensors(batch, channels, outputs, (side, side), torch.bfloat16) for _ in range(max(1, -(-120_000_000 // size)))]
                    error = None
                    if how == "cuDNN":
                        us = microseconds(lambda *given: theirs(kind, *given), sets)
                    else:
                        error = check(kind, how, channels, outputs)
                        us = microseconds(lambda *given: apply(kind, how, *given), sets)
                    how_row = how if how == "cuDNN" else dataclasses.asdict(how)
                    write(key=key, shape=shape, kind=kind, how=how_row, us=us, error=error, default=place == 1)
                except Exception as caught:
                    if how != "cuDNN":
                        wrong.add((kind, channels, outputs, how))
                    write(key=key, failed=f"{type(caught).__name__}: {str(caught).strip()[-250:]}")
                    torch.cuda.synchronize()  # raises again where the context is gone: the next process goes on
        del sets
    for channels, outputs in PAIRS:  # the other precision, by what is default
        for kind in KINDS:
            key = f"float16 {channels} {outputs} {kind}"
            if key not in begun:
                write(key=key, begun=True)
                how = variants(kind, channels, outputs)[0]
                try:
                    write(key=key, half=check(kind, how, channels, outputs, torch.float16))
                except Exception as caught:
                    write(key=key, failed=f"{type(caught).__name__}: {str(caught).strip()[-250:]}")
                    torch.cuda.synchronize()


def steps(options):
    """Whole steps: by cuDNN, by default, and by the best of the sweep, each kernel only where it won."""
    from network_step import NETWORKS, measured

    with open(options.lines, encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if "us" in row]
    best, least = {}, {}
    for row in rows:
        key = (*row["shape"], row["kind"])
        if row["how"] == "cuDNN":
            least[key] = row["us"]
        elif key not in best or row["us"] < best[key][0]:
            best[key] = row["us"], row["how"]

    def closest(kind, channels, outputs, pixels=None):
        keys = [key for key in best if key[1:3] == (channels, outputs) and key[4] == kind]
        return min(keys, key=lambda key: abs(math.log((key[0] * key[3] ** 2) / (pixels or 2**20))), default=None)

    def pays(which, x, weight):
        key = closest(which, weight.shape[1], weight.shape[0], x.numel() // x.shape[1])
        return key is not None and x.numel() // x.shape[1] >= 2**17 and best[key][0] < least.get(key, 0.0)

    def walk(channels, outputs):
        # a walk has no direction here: the forward one from a to b, or the gradient of a convolution from b to a
        key = closest("forward", channels, outputs) if channels >= outputs else None
        key = key or closest("input", outputs, channels) or closest("forward", channels, outputs)
        return Walk(**best[key][1])

    def sums(channels, outputs):
        return Sums(**best[closest("weight", channels, outputs)][1])

    none = dict.fromkeys(middle.WINS, Wins(0, 0))
    ways = {
        "cuDNN": [("WINS", none)],
        "default": [],
        "best of the sweep, where it wins": [("_pays", pays), ("walk", walk), ("sums", sums)],
        "default, forward by cuDNN": [("WINS", middle.WINS | {"forward": Wins(0, 0)})],
        "default, input by cuDNN": [("WINS", middle.WINS | {"input": Wins(0, 0)})],
        "default, weight by cuDNN": [("WINS", middle.WINS | {"weight": Wins(0, 0)})],
    }
    for way, changes in ways.items():
        for name, batch in (("synthetic", 8), ("synthetic", 32), ("PROMISE12", 16)):
            if time.time() - BEGIN > options.seconds:
                return
            try:
                patches = [mock.patch.object(middle, what, value) for what, value in changes]
                for one in patches:
                    one.start()
                found = measured(NETWORKS[name][0], batch, True, 15)
                print(f"step  {name:10} batch {batch:3}  {way:36} {found['milliseconds']:7.3f} ms", flush=True)
                if (name, batch) != ("synthetic", 32) and way in ("default", "best of the sweep, where it wins"):
                    for kernel, us in list(found["microseconds_by_kernel"].items())[:14]:
                        print(f"        {us:8.1f} µs  {kernel[:90]}", flush=True)
            except Exception:
                print(f"FAILED step {name} {batch} {way}: {traceback.format_exc(limit=-3)[-700:]}", flush=True)
            finally:
                for one in patches:
                    one.stop()


def short(how):
    if how == "cuDNN":
        return how
    return " ".join(f"{name} {value}" for name, value in how.items())


def report(lines, out):
    with open(lines, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    done = {row["key"] for row in rows if "begun" not in row}
    died = [row["key"] for row in rows if "begun" in row and row["key"] not in done]
    timed = [row for row in rows if "us" in row]
    order = {shape: place for place, shape in enumerate(SHAPES)}
    timed.sort(key=lambda row: (order[tuple(row["shape"])], KINDS.index(row["kind"]), row["us"]))
    seen = Counter()
    for row in timed:
        where = (*row["shape"], row["kind"])
        seen[where] += 1
        if seen[where] <= 4 or row["how"] == "cuDNN" or row["default"]:
            batch, channels, outputs, side = row["shape"]
            floor = 2 * batch * side * side * (channels + outputs) / 4.2e6
            print(f"{batch:3} × {channels}->{outputs} {side}²  {row['kind']:8} {row['us']:7.1f} µs (bytes {floor:5.1f})  "
                  f"#{seen[where]:<2} {'DEFAULT ' if row['default'] else ''}{short(row['how'])}"
                  + (f"  error {row['error']:.0e}" if row["error"] is not None else ""))
    for row in rows:
        if "failed" in row:
            print(f"FAILED {row['key']}: {row['failed']}")
    for key in died:
        print(f"DIED {key}")
    halves = [row["half"] for row in rows if "half" in row]
    print(f"float16: {len(halves)} kernels right, largest error {max(halves, default=0):.1e}; checked in bfloat16: {len({(str(r['shape'][1:3]), r['kind'], str(r['how'])) for r in timed})} variants")
    if out:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=76.0, help="nothing is begun after that")
    parser.add_argument("--until", type=float, default=52.0, help="no further variants after that, only defaults")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--out", default=None)
    parser.add_argument("--compile", type=int, default=None)
    parser.add_argument("--child", choices=["sweep", "steps"], default=None)
    parser.add_argument("--lines", default=None)
    options = parser.parse_args()
    names = ["synthetic", "PROMISE12"]
    if options.compile is not None:
        if options.compile < len(names):
            warm_step(names[options.compile])
        else:
            compile_some(options.compile - len(names), options.workers - len(names))
        return
    if options.child == "sweep":
        child(options)
        return
    if options.child == "steps":
        steps(options)
        return
    command = [sys.executable, __file__, "--workers", str(options.workers)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*command, "--compile", str(one)], **quiet) for one in range(options.workers)]
    for one in started:
        try:
            one.wait(max(0.5, 36.0 - (time.time() - BEGIN)))
        except subprocess.TimeoutExpired:
            one.kill()
    print(f"compiled after {time.time() - BEGIN:.0f} s; torch {torch.__version__}", flush=True)
    lines = tempfile.NamedTemporaryFile(suffix=".jsonl", delete=False).name
    rest = ["--lines", lines, "--seconds", str(options.seconds), "--until", str(options.until)]
    for _ in range(4):
        try:
            ended = subprocess.run([*command, *rest, "--child", "sweep"], capture_output=True, text=True, check=False,
                                   timeout=max(5.0, options.until + 14 - (time.time() - BEGIN)))
        except subprocess.TimeoutExpired:
            print("the sweep did not end in time")
            break
        if ended.returncode == 0:
            break
        print(f"sweep ended by {ended.returncode}: {ended.stderr.strip()[-300:]}", flush=True)
    report(lines, options.out)
    print(f"swept after {time.time() - BEGIN:.0f} s", flush=True)
    try:
        subprocess.run([*command, *rest, "--child", "steps"], check=False, timeout=max(15.0, options.seconds + 12 - (time.time() - BEGIN)))
    except subprocess.TimeoutExpired:
        print("the steps did not end in time")
    print(f"{time.time() - BEGIN:.0f} s")


if __name__ == "__main__":
    main()

"""Region's kernels by a few variants: right against float64? how fast? The default first.

    PYTHONPATH=src:benchmarks python region-sweep2.py

Times in µs: "cold" as benchmarks/region.py has it, "at once" its second column; then each kernel by the profiler.
"""

import argparse
import dataclasses
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from unittest import mock

BEGIN = time.time()

import torch

import gpu_times
from region import bandwidth, measures, random_boxes
from ringfence.segmentation.fused import binary_kernels, class_kernels
from ringfence.segmentation.fused import cut as cuts

F, B = torch.float32, torch.bfloat16
BINARY, CLASSES = "binary", "classes"
# Tiles beside the box's rows need half of the sums: a branch for them.
ROWS_APART = [
    (
        '''            in_y = span(start_y, stop_y, ys)
            within = tl.sum(s * in_x[None, :], axis=1)
            beside = tl.sum(s * beside_x[None, :], axis=1)
            inside = within * in_y
            tl.store(out_y + row + ys, within + beside, mask=there)
            tl.store(box_y + row + ys, inside, mask=there)
            beyond += beside + within * (1.0 - in_y)
            some_x += tl.sum(s * in_y[:, None], axis=0)
            rest_x += tl.sum(s * (1.0 - in_y)[:, None], axis=0)
            if AXES == 3:
                whole += within + beside
                held += inside
''',
        '''            top = low + step * R
            if (top < stop_y) & (top + R > start_y):
                in_y = span(start_y, stop_y, ys)
                within = tl.sum(s * in_x[None, :], axis=1)
                beside = tl.sum(s * beside_x[None, :], axis=1)
                along = within + beside
                inside = within * in_y
                beyond += beside + within * (1.0 - in_y)
                some_x += tl.sum(s * in_y[:, None], axis=0)
                rest_x += tl.sum(s * (1.0 - in_y)[:, None], axis=0)
            else:  # no row of the tile is the box's
                along = tl.sum(s, axis=1)
                inside = 0.0 * along
                beyond += along
                rest_x += tl.sum(s, axis=0)
            tl.store(out_y + row + ys, along, mask=there)
            tl.store(box_y + row + ys, inside, mask=there)
            if AXES == 3:
                whole += along
                held += inside
''',
    ),
]
# Where boxes start and stop is read once, not in every step.
ENDS_ONCE = [
    (
        '''@triton.jit
def spans(box, row, axis, AXES: tl.constexpr, place, measured):
    """1 where start <= place < stop along an axis of each channel's box, else 0: [channels, places]."""
    start = tl.load(box + (row * AXES + axis) * 2, mask=measured, other=0).to(tl.int32)
    stop = tl.load(box + (row * AXES + axis) * 2 + 1, mask=measured, other=0).to(tl.int32)
    return ((place[None, :] >= start[:, None]) & (place[None, :] < stop[:, None])).to(tl.float32)
''',
        '''@triton.jit
def ends(box, row, axis, AXES: tl.constexpr, measured):
    """Where each channel's box starts and stops along an axis: [channels]; nothing where there is none."""
    start = tl.load(box + (row * AXES + axis) * 2, mask=measured, other=0).to(tl.int32)
    stop = tl.load(box + (row * AXES + axis) * 2 + 1, mask=measured, other=0).to(tl.int32)
    return start, stop


@triton.jit
def ends_in_slice(box, row, z, AXES: tl.constexpr, measured):
    """Likewise along Y in the slice z; with nothing in between where that is beside the box."""
    start, stop = ends(box, row, AXES - 2, AXES, measured)
    if AXES == 3:
        start_z, stop_z = ends(box, row, 0, AXES, measured)
        stop = tl.where((z >= start_z) & (z < stop_z), stop, start)
    return start, stop


@triton.jit
def spans(start, stop, place):
    """1 where start <= place < stop, else 0: [channels, places]."""
    return ((place[None, :] >= start[:, None]) & (place[None, :] < stop[:, None])).to(tl.float32)
''',
    ),
    (
        '''        in_x = spans(box, slot, AXES - 1, AXES, xs, measured)
        if AXES == 3:
            in_z = spans(box, slot, 0, AXES, z + tl.arange(0, 1), measured)
''',
        '''        start_x, stop_x = ends(box, slot, AXES - 1, AXES, measured)
        start_y, stop_y = ends_in_slice(box, slot, z, AXES, measured)
        in_x = spans(start_x, stop_x, xs)
''',
    ),
    (
        '''            in_y = spans(box, slot, AXES - 2, AXES, ys, measured)
            if AXES == 3:
                in_y = in_y * in_z
''',
        '''            in_y = spans(start_y, stop_y, ys)
''',
    ),
    (
        '''        in_x = spans(box, slot, AXES - 1, AXES, xs, measured)
        inner_x''',
        '''        start_x, stop_x = ends(box, slot, AXES - 1, AXES, measured)
        start_y, stop_y = ends_in_slice(box, slot, z, AXES, measured)
        in_x = spans(start_x, stop_x, xs)
        inner_x''',
    ),
    (
        '''            in_z = spans(box, slot, 0, AXES, here, measured)
''',
        '''''',
    ),
]
SMALL = {"tile": 256, "row": 512, "pixels": 4096}
# name, tuning, changes to the kernels' source, which cases it is for
VARIANTS = [
    ("default", {}, [], (BINARY, CLASSES)),
    ("rows apart", {}, ROWS_APART, (BINARY,)),
    ("rows apart, tile 256, row 512, pixels 4096", SMALL, ROWS_APART, (BINARY,)),
    ("tile 256, row 512, pixels 4096", SMALL, [], (BINARY,)),
    ("rows apart, pixels 4096", {"pixels": 4096}, ROWS_APART, (BINARY,)),
    ("rows apart, tile 256, row 512, pixels 8192", SMALL | {"pixels": 8192}, ROWS_APART, (BINARY,)),
    ("ends once", {}, ENDS_ONCE, (CLASSES,)),
]
CASES = [
    (kind, shape, dtype, "contiguous")
    for kind, shape in ((BINARY, (64, 2, 512, 512)), (CLASSES, (16, 4, 512, 512)), (BINARY, (4, 2, 64, 128, 128)))
    for dtype in (F, B)
]


class Case:
    def __init__(self, shape, dtype, layout):
        self.shape, self.dtype, self.layout = shape, dtype, layout
        self.logits = (2 * torch.randn(shape, device="cuda")).to(dtype)
        if layout == "channels last":
            self.logits = self.logits.contiguous(memory_format=torch.channels_last)
        self.boxes = random_boxes(shape)
        self.reference = None

    def __str__(self):
        return f"{'×'.join(map(str, self.shape))} {str(self.dtype).removeprefix('torch.')} {self.layout}"

    def expected(self):
        """By plain operations in float64, once."""
        if self.reference is None:
            with mock.patch("ringfence.segmentation.fused.sums.can_fuse", return_value=False):
                leaf = self.logits.double().requires_grad_()
                found = measures(leaf, self.boxes)
                self.gradients = [torch.randn_like(one).float() for one in found]
                (gradient,) = torch.autograd.grad(found, leaf, [one.double() for one in self.gradients])
            self.reference = [*(one.detach() for one in found), gradient]
        return self.reference

    def step(self):
        leaf = self.logits.detach().requires_grad_()
        found = measures(leaf, self.boxes)
        return [*found, *torch.autograd.grad(found, leaf, self.gradients)]

    def check(self):
        """The largest error of a measure and of the gradient, over the largest number; raises if that is too much."""
        expected = self.expected()
        found = self.step()
        worst = [
            float((one.double() - other).abs().max() / other.abs().max())
            for one, other in zip(found, expected, strict=True)
        ]
        again = self.step()
        if not all(torch.equal(one, other) for one, other in zip(found, again, strict=True)):
            raise AssertionError("not the same twice")
        limit = {F: 2e-6, B: 4e-3}[self.dtype]
        if max(worst[:-1]) > 2e-5 or worst[-1] > limit or not all(one == one for one in worst):
            raise AssertionError(f"errors {worst}")
        return max(worst[:-1]), worst[-1]


def patched(module, changes):
    """The module with its source changed; as it is without changes."""
    if not changes:
        return module
    source = Path(module.__file__).read_text(encoding="utf-8")
    for before, after in changes:
        if before not in source:
            raise AssertionError(f"not there: {before[:60]}")
        source = source.replace(before, after)
    folder = Path(tempfile.gettempdir()) / "region-sweep2"
    folder.mkdir(exist_ok=True)
    name = f"{module.__name__.split('.')[-1]}_{hashlib.sha1(source.encode()).hexdigest()[:8]}"
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def use(kind, change, changes):
    from ringfence.segmentation.fused import launch

    cuts.tuning = dataclasses.replace(cuts.Tuning(), **change)
    launch.binary_kernels = patched(binary_kernels, changes if kind == BINARY else [])
    launch.class_kernels = patched(class_kernels, changes if kind == CLASSES else [])


def measured(case, rounds, profile):
    errors = case.check()
    graph = gpu_times.recorded(case.step)
    cold, at_once = 1e3 * gpu_times.replayed_cold(graph, rounds), 1e3 * gpu_times.timed(graph.replay, rounds)
    del graph
    names = {name: 1e3 * one for name, one in gpu_times.kernels(case.step, 10).items()} if profile else {}
    return cold, at_once, *errors, ", ".join(f"{name[:20]} {one:.1f}" for name, one in names.items())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=38.0, help="no further variants after that")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile first")
    parser.add_argument("--warm", type=int, default=None)
    options = parser.parse_args()
    if options.warm is not None:
        jobs = [(case, variant) for variant in VARIANTS for case in CASES if case[0] in variant[-1]]
        for (kind, shape, dtype, layout), (_, change, changes, _) in jobs[options.warm :: options.workers]:
            try:
                use(kind, change, changes)
                case = Case(shape, dtype, layout)
                found = measures(case.logits.requires_grad_(), case.boxes)
                torch.autograd.grad(found, case.logits, [torch.ones_like(one) for one in found])
            except Exception:
                pass
        return
    if options.workers:
        command = [sys.executable, __file__, "--workers", str(options.workers), "--warm"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen([*command, str(one)], **quiet) for one in range(options.workers)]
        for one in started:
            try:
                one.wait(max(1.0, 25.0 - (time.time() - BEGIN)))
            except subprocess.TimeoutExpired:
                one.kill()
        print(f"compiled after {time.time() - BEGIN:.0f} s", flush=True)
    torch.manual_seed(time.time_ns() % 2**31)
    copy = bandwidth(options.rounds)
    print(f"copy {copy:.2f} TB/s, torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    sweep(options, copy)
    print(f"{time.time() - BEGIN:.0f} s")


def sweep(options, copy):
    for kind, shape, dtype, layout in CASES:
        case = Case(shape, dtype, layout)
        ideal = 3 * case.logits.nbytes / copy / 1e6
        for name, change, changes, kinds in VARIANTS:
            if kind not in kinds or (name != "default" and time.time() - BEGIN > options.seconds):
                continue
            try:
                use(kind, change, changes)
                cold, at_once, error, slope, kernels = measured(case, options.rounds, True)
                print(
                    f"{case!s:36} {name:44} cold {cold:6.1f} µs {ideal / cold:6.1%}   at once {at_once:6.1f} µs   "
                    f"errors {error:.0e} {slope:.0e}   {kernels}",
                    flush=True,
                )
            except Exception:
                print(f"FAILED {case}: {name}: {traceback.format_exc(limit=-2).strip()[-600:]}", flush=True)


if __name__ == "__main__":
    main()

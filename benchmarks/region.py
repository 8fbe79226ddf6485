"""Region's measures on a GPU: time as a share of the copy bandwidth, and memory; fused, plain and compiled.

    python benchmarks/region.py --out results/speed/region

What is timed is size, centroid, outside and strips, and their gradient, replayed from a CUDA graph; the median of
the rounds counts. Before each replay the GPU's cache is filled by reading another buffer of 256 MB, and the launch
is hidden behind that: it is the GPU's own time, as in a training, where other layers come in between. A second
column has replays one at a time with neither: with the launch, and with what the last one left in the cache.

What must move is the logits, read twice, and the gradient, written once; a copy in the same run, of buffers far
larger than the cache, tells how fast that could be.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from gpu_times import kernels, recorded, replayed_cold, timed
from ringfence.environment import commit, environment
from ringfence.segmentation import Region

MAIN = (64, 2, 512, 512)
SHAPES = [(16, 2, 256, 256), (16, 2, 1024, 1024), (16, 4, 512, 512), (16, 16, 256, 256), (4, 2, 64, 128, 128)]
"""Growth with pixels, classes and axes."""


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    copy = bandwidth(options.rounds)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for layout in ("contiguous", "channels last"):
            rows.append(row(MAIN, dtype, layout, "fused", copy, options.rounds))
        for how in ("plain", "compiled"):
            rows.append(row(MAIN, dtype, "contiguous", how, copy, options.rounds))
    rows += [row(shape, torch.float32, "contiguous", "fused", copy, options.rounds) for shape in SHAPES]
    record: dict[str, Any] = {
        "command": f"python benchmarks/region.py --rounds {options.rounds}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "copy_terabytes_a_second": copy,
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def bandwidth(rounds: int) -> float:
    """Bytes read and written by a copy of a gibibyte, in TB/s."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / timed(lambda: target.copy_(source), rounds) / 1e9


def row(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, how: str, copy: float, rounds: int
) -> dict[str, Any]:
    """What one variant takes."""
    logits = torch.randn(shape, device="cuda").to(dtype)
    if layout == "channels last":
        logits = logits.contiguous(memory_format=torch.channels_last)
    boxes = random_boxes(shape)
    measure: Callable[[Tensor], list[Tensor]] = lambda given: measures(given, boxes)  # noqa: E731
    if how == "compiled":
        measure = torch.compile(measure, dynamic=False)
    fused = mock.patch("ringfence.segmentation.fused.sums.can_fuse", return_value=False)
    if how == "plain":
        fused.start()
    gradients = [torch.randn_like(one) for one in measure(logits)]

    def step() -> None:
        leaf = logits.detach().requires_grad_()
        torch.autograd.grad(measure(leaf), leaf, gradients)

    graph = recorded(step)
    cold, at_once = replayed_cold(graph, rounds), timed(graph.replay, rounds)
    del graph
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated() - before
    alone = {name: 1e3 * time for name, time in kernels(step, rounds).items()} if how == "fused" else {}
    mock.patch.stopall()
    return {
        "shape": list(shape),
        "dtype": str(dtype).removeprefix("torch."),
        "layout": layout,
        "how": how,
        "microseconds": 1e3 * cold,
        "microseconds_replayed_at_once": 1e3 * at_once,
        "share_of_copy": 3 * logits.nbytes / (cold * 1e9) / copy,
        "peak_memory_over_logits": peak / logits.nbytes,
        "microseconds_of_kernels": alone,
    }


def measures(logits: Tensor, boxes: Tensor) -> list[Tensor]:
    """The four."""
    region = Region(logits, boxes=boxes)
    return [region.size, region.centroid, region.outside(boxes), region.strips(boxes, 5).sums]


def random_boxes(shape: tuple[int, ...]) -> Tensor:
    """One for each image and class, of about half the image's side."""
    batch, channels, *space = shape
    low = torch.stack([torch.randint(0, length // 2, (batch, channels - 1)) for length in space], dim=-1)
    return torch.stack([low, low + torch.tensor(space) // 2], dim=-1).cuda()


def as_markdown(record: dict[str, Any]) -> str:
    """As a table."""
    facts = record["environment"]
    lines = [
        "Size, centroid, outside and strips with their gradient, the cache full of something else; the copy in the "
        f"same run moved {record['copy_terabytes_a_second']:.2f} TB/s:",
        "",
        "| logits | dtype | layout | how | µs | share of the copy bandwidth | µs, replayed at once "
        "| peak memory over the logits |",
        "|---" * 8 + "|",
    ]
    lines += [
        f"| {'×'.join(map(str, one['shape']))} | {one['dtype']} | {one['layout']} | {one['how']} "
        f"| {one['microseconds']:.0f} | {one['share_of_copy']:.1%} "
        f"| {one['microseconds_replayed_at_once']:.0f} | {one['peak_memory_over_logits']:.2f} × |"
        for one in record["rows"]
    ]
    lines += [
        "",
        "The kernels of the fused ones by the profiler, and the logits' bytes at the copy's speed:",
        "",
        "| logits | dtype | layout | the logits' bytes, µs | kernels, µs |",
        "|---" * 5 + "|",
    ]
    lines += [
        f"| {'×'.join(map(str, one['shape']))} | {one['dtype']} | {one['layout']} "
        f"| {one['microseconds'] * one['share_of_copy'] / 3:.1f} "
        f"| {', '.join(f'{name} {time:.1f}' for name, time in one['microseconds_of_kernels'].items())} |"
        for one in record["rows"]
        if one["how"] == "fused"
    ]
    lines += ["", f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['gpu']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""Times on a GPU, by its own events: of a function, or of its replay from a CUDA graph; the median counts."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

WARM: int = 3
"""Rounds that do not count."""


def timed(function: Callable[[], object], rounds: int) -> float:
    """Milliseconds of a call, median."""
    times = []
    for _ in range(rounds + WARM):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        function()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last))
    return float(statistics.median(times[WARM:]))


def replayed(step: Callable[[], object], rounds: int) -> float:
    """Milliseconds of a replay from a CUDA graph, median; ``step`` makes its leaves itself, as it is recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return timed(graph.replay, rounds)

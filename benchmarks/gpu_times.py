"""Times on a GPU, by its own events: of a function, or of its replay from a CUDA graph; the median counts."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

WARM: int = 3
"""Rounds that do not count."""
OTHER: int = 1 << 28
"""Bytes that are read before a cold replay: several times the cache of any GPU."""


def timed(function: Callable[[], object], rounds: int, before: Callable[[], object] | None = None) -> float:
    """Milliseconds of a call, median; what is done before each does not count."""
    times = []
    for _ in range(rounds + WARM):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if before is not None:
            before()
        first.record()
        function()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last))
    return float(statistics.median(times[WARM:]))


def recorded(step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``step``, which makes its leaves itself, as it is recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def replayed(step: Callable[[], object], rounds: int) -> float:
    """Milliseconds of a replay from a CUDA graph, median; the launch and a cache left warm are in it."""
    return timed(recorded(step).replay, rounds)


def replayed_cold(graph: torch.cuda.CUDAGraph, rounds: int) -> float:
    """Milliseconds of a replay with the cache full of something else, and the launch hidden behind that; median.

    Another buffer is read before each replay, and while the GPU does that, the host launches the graph: between the
    events is what the GPU itself takes, as in a training, where other layers use the cache in between.
    """
    other = torch.zeros(OTHER // 4, device="cuda")
    return timed(graph.replay, rounds, before=other.sum)


def kernels(step: Callable[[], object], rounds: int) -> dict[str, float]:
    """Milliseconds of each kernel of a step by the profiler, mean."""
    step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(rounds):
            step()
        torch.cuda.synchronize()
    times = {one.key: one.device_time_total / rounds / 1e3 for one in profile.key_averages()}
    return {name: time for name, time in times.items() if time > 0}

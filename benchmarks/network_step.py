"""What a training step of a network takes on a GPU, kernel by kernel: plain, and computed in fewer passes.

    python benchmarks/network_step.py --out results/speed/network_step

A BasicUNet in bfloat16, channels last: forward, backward and Adam, replayed from a CUDA graph; the median counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from monai.networks.nets.basic_unet import BasicUNet
from torch.profiler import ProfilerActivity, profile

from gpu_times import replayed
from ringfence.environment import commit, environment
from ringfence.weak.networks.fast import faster

NETWORKS = {"PROMISE12": ((32, 32, 64, 128, 256, 32), 16), "synthetic": ((16, 32, 64, 128, 256, 16), 8)}
"""Features, and images a batch, of 256×256."""
KERNELS = 30
"""Listed for each, those that take most."""


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [
        {"network": name, "fused": fused, "batch": batch} | measured(features, batch, fused, options.rounds)
        for name, (features, batch) in NETWORKS.items()
        for fused in (False, True)
    ]
    record: dict[str, Any] = {
        "command": f"python benchmarks/network_step.py --rounds {options.rounds}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def measured(features: tuple[int, ...], batch: int, fused: bool, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step, and what its kernels take."""
    torch.manual_seed(0)
    network = BasicUNet(2, 1, 2, features, act="relu", norm="batch", upsample="nontrainable")
    network.cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if fused:
        faster(network)
    images = torch.randn(batch, 1, 256, 256, device="cuda").to(memory_format=torch.channels_last)
    trained = [one for one in network.parameters() if one.requires_grad]
    optimiser = torch.optim.Adam(trained, fused=True, capturable=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            logits = network(images)
        logits.float().square().mean().backward()
        optimiser.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            step()
            torch.cuda.synchronize()
    kernels = sorted(seen.key_averages(), key=lambda one: -one.self_device_time_total)
    return {
        "milliseconds": replayed(step, rounds),
        "microseconds_by_kernel": {one.key[:120]: one.self_device_time_total for one in kernels[:KERNELS]},
    }


def as_markdown(record: dict[str, Any]) -> str:
    """As a table; the kernels are in the JSON."""
    facts = record["environment"]
    lines = ["| network | batch | fused | step | images/s |", "|---|---|---|---|---|"]
    lines += [
        f"| {one['network']} | {one['batch']} | {'yes' if one['fused'] else 'no'} | {one['milliseconds']:.2f} ms "
        f"| {1e3 * one['batch'] / one['milliseconds']:,.0f} |"
        for one in record["rows"]
    ]
    lines += ["", f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['gpu']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

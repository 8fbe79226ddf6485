"""A record of what the sweeps of `benchmarks/as_run` printed on a GPU: Region, a network's step, convolutions.

    python benchmarks/sweeps.py region.log network.json convolutions.json --environment constraints_cost.json \
        --out results/speed/sweeps

The environment is that of another record, made on the same machine on the same day.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Final

COMMITS: Final = {
    "region": "628b465",
    "network": "68b7b49, before thin convolutions",
    "convolutions": "628b465, whose defaults were then changed to the best of these",
}
ROW: Final = re.compile(
    r"^(?P<shape>[\d×]+) (?P<dtype>\w+) contiguous +(?P<variant>.+?) +cold +(?P<cold>[\d.]+) µs +(?P<share>[\d.]+)%"
    r" +at once +(?P<at_once>[\d.]+) µs.*?errors (?P<error>\S+) (?P<slope>\S+) +(?P<kernels>.*)$"
)


def main() -> None:
    """Read, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("region", type=Path)
    parser.add_argument("network", type=Path)
    parser.add_argument("convolutions", type=Path)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    facts = json.loads(options.environment.read_text(encoding="utf-8"))["environment"]
    lines = options.region.read_text(encoding="utf-8").splitlines()
    network = json.loads(options.network.read_text(encoding="utf-8"))
    record: dict[str, Any] = {
        "command": "python benchmarks/sweeps.py region.log network.json convolutions.json --environment "
        f"{options.environment}",
        "seed": 0,
        "environment": facts | {"commit": COMMITS},
        "copy": next(line for line in lines if line.startswith("copy ")),
        "region": [found.groupdict() for line in lines if (found := ROW.match(line))],
        "milliseconds_of_a_step": network["times"],
        "convolutions": [
            {name: one[name] for name in ("shape", "kind", "how", "us")}
            for one in json.loads(options.convolutions.read_text(encoding="utf-8"))
            if "us" in one
        ],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def as_markdown(record: dict[str, Any]) -> str:
    """Region as it is; steps with each change left out; convolutions, the best and cuDNN's."""
    lines = [
        f"Region, size, centroid, outside and strips with their gradient, L2 cold ({record['copy']}):",
        "",
        "| logits | dtype | µs | share of the copy bandwidth | kernels, µs |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one['shape']} | {one['dtype']} | {one['cold']} | {one['share']} % | {one['kernels']} |"
        for one in record["region"]
        if one["variant"] == "default"
    ]
    steps = record["milliseconds_of_a_step"]
    names = list(next(iter(steps.values())))
    lines += ["", "A step of the network alone, ms, by what was changed (network and batch):", ""]
    lines += ["| | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    lines += [
        f"| {what} | " + " | ".join(f"{times[name]:.2f}" if name in times else "–" for name in names) + " |"
        for what, times in steps.items()
    ]
    lines += ["", "3 × 3 convolutions of few channels, µs (batch, channels in and out, side):", ""]
    lines += ["| convolution | forward | cuDNN | input's gradient | cuDNN | weight's gradient | cuDNN |"]
    lines += ["|---" * 7 + "|"]
    for shape in dict.fromkeys(tuple(one["shape"]) for one in record["convolutions"]):
        cells = []
        for kind in ("forward", "input", "weight"):
            each = [one for one in record["convolutions"] if (tuple(one["shape"]), one["kind"]) == (shape, kind)]
            ours = [one["us"] for one in each if one["how"] != "cuDNN" and one["us"]]
            theirs = [one["us"] for one in each if one["how"] == "cuDNN" and one["us"]]
            cells += [f"{min(some):.0f}" if some else "–" for some in (ours, theirs)]
        batch, channels, outputs, side = shape
        lines.append(f"| {batch}, {channels} → {outputs}, {side}² | {' | '.join(cells)} |")
    lines += ["", f"`{record['command']}`, torch {record['environment']['torch']}, {record['environment']['gpu']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

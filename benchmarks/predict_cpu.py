"""`ringfence predict` on a CPU: seconds a volume, beside an earlier version's, in one run.

    git worktree add --detach /tmp/before 2eb7e49
    python benchmarks/predict_cpu.py --before /tmp/before --out results/speed/predict_cpu

Volumes of 20 slices 256 × 256, MONAI's BasicUNet of width 32, averaged over left and right. The whole command is
measured on few and on many volumes, so that a volume's time is told from that of starting Python; the versions take
turns, and medians of the rounds are reported. The masks of the two are compared. A floor says what is left to gain:
the network's arithmetic, at the rate of one large convolution on each core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from ringfence.environment import commit, environment
from ringfence.weak.evaluation import evaluate
from ringfence.weak.inference.allocator import keep_memory
from ringfence.weak.inference.model_file import ModelCard, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing

HERE = Path(__file__).resolve().parents[1]
SEED, SLICES, SIDE, TIMES = 0, 20, 256, 30
FEATURES = [32, 32, 64, 128, 256, 32]
NETWORK = "monai.networks.nets.BasicUNet"
ARGUMENTS = {
    "spatial_dims": 2,
    "in_channels": 1,
    "out_channels": 2,
    "features": FEATURES,
    "act": "relu",
    "norm": "batch",
    "upsample": "nontrainable",
}
WAYS: dict[str, list[str]] = {"flips": [], "no flips": ["--no-flips"]}


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the version to compare with")
    parser.add_argument("--volumes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder / "model.safetensors")
        make_scans(folder, options.volumes)
        rounds = [measured(folder, options, number) for number in range(options.rounds)]
    record: dict[str, Any] = {
        "command": f"python benchmarks/predict_cpu.py --before BEFORE --volumes {options.volumes} "
        f"--rounds {options.rounds}",
        "seed": SEED,
        "environment": environment() | {"commit": commit()},
        "before": commit_of(options.before),
        "cores": len(os.sched_getaffinity(0)),
        "volume": [SLICES, SIDE, SIDE],
        "floor": floor(),
        "by_way": {way: summary([one[way] for one in rounds]) for way in WAYS},
        "rounds": rounds,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def make_model(path: Path) -> None:
    """Fresh weights, batch normalisations that have seen images, an offset that makes half of them foreground."""
    torch.manual_seed(SEED)
    network = Tempered(build_network(NETWORK, ARGUMENTS)).train()
    images = torch.rand(4, 1, 64, 64)
    with torch.no_grad():
        for _ in range(3):
            network(images)
        logits = network.eval()(images)
        network.offset[1] -= (logits[:, 1] - logits[:, 0]).median()
    card = ModelCard(NETWORK, ARGUMENTS, ("T2",), ("disc",), Preprocessing((SIDE, SIDE)), flips=("left-right",))
    save_model(path, network, card)


def make_scans(folder: Path, count: int) -> None:
    """``one`` volume, and ``many``: smooth noise of 16 bits."""
    random = torch.Generator().manual_seed(SEED)
    for name, number in (("one", 1), ("many", 1 + count)):
        (folder / name).mkdir()
        for k in range(number):
            coarse = torch.randn(SLICES, 1, SIDE // 8, SIDE // 8, generator=random)
            smooth = F.interpolate(coarse, (SIDE, SIDE), mode="bicubic")[:, 0]
            noisy = 500 + 200 * smooth + 20 * torch.randn(smooth.shape, generator=random)
            voxels = noisy.to(torch.int16).numpy().transpose(2, 1, 0)
            image = nibabel.Nifti1Image(voxels, np.diag([0.6, 0.6, 3.6, 1.0]))  # type: ignore[no-untyped-call]
            nibabel.save(image, folder / name / f"c{k}.nii.gz")


def measured(folder: Path, options: argparse.Namespace, number: int) -> dict[str, dict[str, Any]]:
    """A round: for each way, both versions one after the other, what a volume takes, and how alike masks are."""
    found: dict[str, dict[str, Any]] = {}
    for way, arguments in WAYS.items():
        outs = {}
        found[way] = {}
        for version, source in (("before", options.before), ("now", HERE)):
            took = {}
            for scans in ("one", "many"):
                out = outs[version] = folder / f"{number} {way} {version} {scans}"
                took[scans] = timed(
                    source, [str(folder / "model.safetensors"), str(folder / scans), str(out), *arguments]
                )
            found[way][version] = {
                name: (took["many"][name] - took["one"][name]) / options.volumes for name in took["one"]
            } | {"command_seconds": took["many"]["seconds"]}
        found[way]["dice"] = least_dice(outs["before"], outs["now"])
        print(way, found[way], flush=True)
    return found


def timed(source: Path, arguments: list[str]) -> dict[str, float]:
    """Seconds that a command takes, on the clock and of processors."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ringfence", "predict", *arguments, "--device", "cpu"],
        env=os.environ | {"PYTHONPATH": str(source / "src")},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": seconds,
        "user": after.ru_utime - before.ru_utime,
        "system": after.ru_stime - before.ru_stime,
    }


def least_dice(one: Path, other: Path) -> float:
    """Of the masks of two folders, case by case."""
    evaluation = evaluate(one, other, labels=[1])
    if evaluation.failed:
        raise SystemExit(f"masks cannot be compared: {evaluation}")
    return min(score.dice for score in evaluation.scores)


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the rounds, and the least Dice."""
    names = ("seconds", "user", "system", "command_seconds")
    middle = {
        version: {name: statistics.median(one[version][name] for one in rounds) for name in names}
        for version in ("before", "now")
    }
    ratio = statistics.median(one["before"]["seconds"] / one["now"]["seconds"] for one in rounds)
    return middle | {"ratio": ratio, "least_dice": min(one["dice"] for one in rounds)}


def floor() -> dict[str, Any]:
    """Operations of the network for a slice, and how many a second a large convolution of its own does."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counted:
        build_network(NETWORK, ARGUMENTS).eval()(torch.empty(1, 1, SIDE, SIDE))
    rates = {str(dtype).removeprefix("torch."): rate(dtype) for dtype in (torch.float32, torch.bfloat16)}
    return {"operations_a_slice": counted.get_total_flops(), "operations_a_second": rates}


@torch.inference_mode()
def rate(dtype: torch.dtype) -> float:
    """Of the widest convolution at full size, at its best: what a core does, by its own clock, times cores."""
    first, *_, outputs = FEATURES
    inputs = 2 * first
    keep_memory()
    torch.set_num_threads(1)
    images = torch.rand(1, inputs, SIDE, SIDE, dtype=dtype).to(memory_format=torch.channels_last)
    weights = torch.rand(outputs, inputs, 3, 3, dtype=dtype).to(memory_format=torch.channels_last)
    took = []
    for _ in range(TIMES):
        begin = time.thread_time()
        F.conv2d(images, weights, padding=1)
        took.append(time.thread_time() - begin)
    return len(os.sched_getaffinity(0)) * 2 * 9 * inputs * outputs * SIDE**2 / min(took)


def commit_of(folder: Path) -> str:
    """Of a checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def as_markdown(record: dict[str, Any]) -> str:
    """A table of both versions."""
    facts = record["environment"]
    lines = [
        f"`ringfence predict` on {record['cores']} cores of {facts['cpu']}, for a volume of "
        f"{' × '.join(map(str, record['volume']))}, BasicUNet of width 32 (each further volume; what "
        "starting takes is left out):",
        "",
        "| | before, s (user + system) | now, s (user + system) | ratio | least Dice between the masks |",
        "|---|---|---|---|---|",
    ]
    for way, one in record["by_way"].items():
        cells = [
            f"{one[version]['seconds']:.2f} ({one[version]['user']:.2f} + {one[version]['system']:.2f})"
            for version in ("before", "now")
        ]
        lines.append(f"| {way} | {' | '.join(cells)} | {one['ratio']:.2f} | {one['least_dice']:.6f} |")
    rates = record["floor"]["operations_a_second"]
    slices = record["volume"][0] * record["floor"]["operations_a_slice"]
    lines += [
        "",
        f"The floor: {slices / 1e9:.0f} billion operations without flips, and twice that with flips. At the rate "
        f"of one large convolution in float32 ({rates['float32'] / 1e9:.0f} billion a second) they take "
        f"{slices / rates['float32']:.2f} s and {2 * slices / rates['float32']:.2f} s. bfloat16 (here "
        f"{rates['bfloat16'] / 1e9:.0f} billion a second) is not used: masks would not be the same.",
        "",
        f"`{record['command']}`, seed {record['seed']}, torch {facts['torch']}, commit {facts['commit']}; before "
        f"is {record['before']}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""On a real GPU: CUDA graphs train the network that plain launches train, and every method runs there."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ringfence.weak.compare import compare_synthetic
from ringfence.weak.settings import METHODS, SCALES, CompareSettings

pytestmark = pytest.mark.gpu


def settings(**training: object) -> CompareSettings:
    small = SCALES["small"]
    return replace(
        small,
        data=replace(small.data, size=32, train=18, validation=5),
        training=replace(small.training, **{"epochs": 2, "batch_size": 4, "device": "cuda"} | training),
    )


def rows(folder: Path, method: str) -> list[dict[str, str]]:
    with (folder / "seed-0" / method / "metrics.csv").open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_graphs_train_as_plain_launches_do(tmp_path: Path, precision: str) -> None:
    """18 images in batches of 4: the last one of an epoch is smaller, and is not replayed."""
    torch.backends.cudnn.deterministic = True
    try:
        losses = {}
        for graphs in (True, False):
            asked = settings(cuda_graphs=graphs, precision=precision)
            folder = compare_synthetic(asked, tmp_path / str(graphs), console=Console(quiet=True)).path
            losses[graphs] = {m: [float(row["train_loss"]) for row in rows(folder, m)] for m in METHODS}
    finally:
        torch.backends.cudnn.deterministic = False
    for method in METHODS:
        tolerance = 2e-2 if precision == "32" else 2e-1  # other kernels may be chosen, and steps amplify it
        assert losses[True][method] == pytest.approx(losses[False][method], rel=tolerance, abs=1e-4), method


def test_compile_is_an_option(tmp_path: Path) -> None:
    asked = replace(settings(compile=True), methods=["log_barrier"])
    folder = compare_synthetic(asked, tmp_path / "run", console=Console(quiet=True)).path
    assert len(rows(folder, "log_barrier")) == 2

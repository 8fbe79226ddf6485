"""Two gloo processes give the same multipliers, losses, weights and monitor values as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ringfence as rf
from ranks import FENCES, run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of one process alone, then of ranks 0 and 1."""
    folder = tmp_path_factory.mktemp("ranks")
    run(0, 1, str(folder))
    torch.multiprocessing.spawn(run, args=(2, str(folder)), nprocs=2)
    names = ("rank0of1.pt", "rank0of2.pt", "rank1of2.pt")
    return [torch.load(Path(folder) / name, weights_only=True) for name in names]


@pytest.mark.parametrize("name", FENCES)
@pytest.mark.parametrize("what", ["multipliers", "losses", "weights", "measures"])
def test_two_ranks_equal_one(results: list[dict[str, Any]], name: str, what: str) -> None:
    alone, *ranks = (result[name][what] for result in results)
    for one in ranks:
        torch.testing.assert_close(one, alone, rtol=1e-5, atol=1e-6, equal_nan=True)
    if what == "multipliers":
        torch.testing.assert_close(ranks[0], ranks[1], rtol=0.0, atol=0.0)
        if isinstance(FENCES[name](), (rf.Lagrangian, rf.AugmentedLagrangian, rf.ReLULagrangian)):
            assert alone["size"].max() > 0
    if what == "measures":
        assert not torch.isnan(alone[-1]["stability"])


def test_a_rank_without_data_takes_part_in_the_dual_step(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["late rank"].flatten().tolist() == [0.5, 1.5, 0.5, 2.5]


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric Monitor was called before:UserWarning")
def test_a_rank_without_data_sees_the_same_measures(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["empty monitor"]["satisfaction/a"].item() == pytest.approx(1 / 3)
        assert result["empty monitor"]["worst"].item() == 2.0

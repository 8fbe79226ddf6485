"""Two gloo processes give the same multipliers, losses, weights and monitor values as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import children
from ranks import FENCES, run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of one process alone, then of ranks 0 and 1."""
    folder = tmp_path_factory.mktemp("ranks")
    run(0, 1, str(folder))
    children.ranks(run, 2, str(folder))
    names = ("rank0of1.pt", "rank0of2.pt", "rank1of2.pt")
    return [torch.load(Path(folder) / name, weights_only=True) for name in names]


@pytest.mark.parametrize("name", FENCES)
@pytest.mark.parametrize("what", ["multipliers", "losses", "weights", "measures"])
def test_two_ranks_equal_one(results: list[dict[str, Any]], name: str, what: str) -> None:
    alone, *ranks = (result[name][what] for result in results)
    for one in ranks:
        if name == "augmented, shared":  # its quadratic is about the mean of a call, so of each rank's part
            torch.testing.assert_close(one, ranks[0], equal_nan=True)
            continue
        torch.testing.assert_close(one, alone, rtol=1e-5, atol=1e-6, equal_nan=True)
    if what == "multipliers":
        torch.testing.assert_close(ranks[0], ranks[1], rtol=0.0, atol=0.0)
        if FENCES[name].dual:
            assert alone["size"].max() > 0
    if what == "measures":
        assert not torch.isnan(alone[-1]["stability"])


def test_a_rank_without_data_takes_part_in_the_dual_step(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["late rank"].flatten().tolist() == [0.5, 1.5, 0.5, 2.5]


def test_a_rank_without_data_learns_every_kind_of_shared_multiplier(results: list[dict[str, Any]]) -> None:
    for result in results:
        found = {name: one.tolist() for name, one in result["late rank, shared"].items()}
        assert found == {"one": 1.0, "two": [0.0, 0.5], "equal": -2.5}


def test_different_shapes_are_an_error_on_every_rank(results: list[dict[str, Any]]) -> None:
    """D4: gloo would abort the process."""
    alone, *ranks = (result["different shapes"] for result in results)
    assert alone == "no error"
    for message in ranks:
        assert "multipliers of 'a' differ between ranks" in message
        assert "shape [3] of torch.float32 on rank 0" in message
        assert "shape [4] of torch.float32 on rank 1" in message
        assert "give index=" in message


def test_uneven_calls_do_not_wait_for_each_other(results: list[dict[str, Any]]) -> None:
    """D5: and the step that follows is the same everywhere."""
    assert [result["uneven calls"].item() for result in results] == [1.0, 1.0, 1.0]


def test_ranks_that_disagree_say_so_everywhere(results: list[dict[str, Any]]) -> None:
    for result in results[1:]:
        assert "constraints differ between ranks: {0: ['limit0'], 1: ['limit1']}" in result["different names"]
        assert "multipliers of 'a' are not the same on rank 0 and rank 1" in result["changed by hand"]
        assert "changed in place" in result["changed in place"]


def test_a_step_without_anything_seen_warns_on_every_rank(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert len(result["nothing seen"]) == 1
        assert "saw no residual" in result["nothing seen"][0]


def test_one_rank_that_observes_takes_the_others_along(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["one rank observes"].item() == 1.0


def test_a_fault_on_one_rank_stops_them_all(results: list[dict[str, Any]]) -> None:
    _, first, second = (result["a fault on one rank"] for result in results)
    assert "constraint 'a'" in first
    assert "rank 0 found a fault, so no rank takes this step" in second
    assert "NaN or infinite" in second


def test_tables_of_different_lengths_become_one(results: list[dict[str, Any]]) -> None:
    for result in results:
        table = result["tables of different lengths"]
        assert table.nonzero()[:, 0].tolist() == [0, 2, 40, 41]
        assert table[[0, 2, 40, 41]].tolist() == [2.0, 2.0, 3.0, 3.0]


def test_a_multiplier_network_is_the_same_on_every_rank(results: list[dict[str, Any]]) -> None:
    alone, *ranks = (result["network"] for result in results)
    for weights in ranks:
        torch.testing.assert_close(weights, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric Monitor was called before:UserWarning")
def test_a_rank_without_data_sees_the_same_measures(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["empty monitor"]["satisfaction/a"].item() == pytest.approx(1 / 3)
        assert result["empty monitor"]["worst"].item() == 2.0

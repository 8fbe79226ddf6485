"""Sharded multipliers are those of one process, on any number of ranks; what ranks send is right and little."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_ranks import ON_FOUR, SAMPLES, names, run, run_on_a_gpu, saved
from torch import Tensor

import children
import ringfence as rf
from ringfence.methods.multipliers.exchange import Rows, merged, parcel_size, parcelled, rows_in
from ringfence.methods.multipliers.fingerprint import fingerprint
from ringfence.methods.multipliers.sharded import latest, routes, shard_length

WORLDS = (1, 2, 4)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """Of each rank, by how many there are; those of more go on from the states of fewer."""
    folder = tmp_path_factory.mktemp("shards")
    run(0, 1, str(folder))
    for world in WORLDS[1:]:
        children.ranks(run, world, str(folder))
    later = saved(0, 1, folder, others=(2, 4))
    found = {
        world: [torch.load(Path(folder) / f"rank{rank}of{world}.pt", weights_only=True) for rank in range(world)]
        for world in WORLDS
    }
    found[1][0]["saved"] |= later
    return found


def tables(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: one for key, one in state.items() if key.startswith(("multipliers", "optimiser", "last"))}


@pytest.mark.parametrize("each", ["epoch", "each"])
@pytest.mark.parametrize(("world", "name"), [(world, name) for world in WORLDS for name in names(world)])
def test_sharded_multipliers_are_the_same_bit_for_bit(
    results: dict[int, list[dict[str, Any]]], world: int, name: str, each: str
) -> None:
    """As those of one process, with uneven batches, empty ranks and repeated data points."""
    alone = results[1][0][f"{name}, {each}, replicated"]
    ranks = [result[f"{name}, {each}, sharded"] for result in results[world]]
    replicated = [result[f"{name}, {each}, replicated"] for result in results[world]]
    for mine, other in zip(ranks, replicated, strict=True):
        torch.testing.assert_close(mine["losses"], other["losses"], rtol=0, atol=0)
        torch.testing.assert_close(mine["duals"], alone["duals"], rtol=0, atol=0)
        assert mine["summary"] == pytest.approx(alone["summary"], rel=1e-6)
    torch.testing.assert_close(sum(one["losses"] for one in ranks), alone["losses"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(tables(ranks[0]["state"]), tables(alone["state"]), rtol=0, atol=0)
    torch.testing.assert_close(tables(replicated[-1]["state"]), tables(alone["state"]), rtol=0, atol=0)
    assert ranks[0]["state"]["multipliers.size"].max() > 0.3


@pytest.mark.parametrize(("world", "name"), [(world, name) for world in WORLDS for name in names(world)])
def test_a_state_goes_on_with_any_number_of_ranks(
    results: dict[int, list[dict[str, Any]]], world: int, name: str
) -> None:
    """Sharded or not, from an epoch's end or its middle, all end with the multipliers of one uninterrupted process."""
    expected = tables(results[1][0]["saved"][name])
    found = results[world][0]["saved"]
    ways = [key for key in found if key == name or key.startswith((f"{name}, after", f"{name}, middle"))]
    assert len(ways) == {1: 1 + (3 if name in ON_FOUR else 2) * 4, 2: 1 + 2 * 3, 4: 1 + 2 * 3}[world]
    for key in ways:
        torch.testing.assert_close(
            tables(found[key]), expected, rtol=0, atol=0, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize("world", WORLDS)
def test_memory_falls_with_the_ranks(results: dict[int, list[dict[str, Any]]], world: int) -> None:
    """λ, two moments of Adam, and whether it was met: 25 bytes a data point of two constraints, and little else."""
    for result in results[world]:
        memory = result["memory"]
        assert memory["rows"] == 40_000 // world
        assert memory["held"] <= 25 * 40_000 // world + 4096


def test_each_rank_shows_its_own_rows(results: dict[int, list[dict[str, Any]]]) -> None:
    for world in WORLDS:
        rows = [result[f"{ON_FOUR[0]}, epoch, sharded"]["rows"]["size"] for result in results[world]]
        assert rows == [len(range(rank, SAMPLES, world)) for rank in range(world)]


@pytest.mark.parametrize("way", ["sent", "sent, sharded"])
def test_what_is_sent_does_not_depend_on_how_many_data_points_there_are(
    results: dict[int, list[dict[str, Any]]], way: str
) -> None:
    for world in WORLDS[1:]:
        for result in results[world]:
            few, many = result[way].values()
            assert few == many
            # a row is a number, a sum and a count; headers of tables and ranks come on top
            assert 0 < few["bytes"] <= 2 * (8 * 16 + 24 * world + 64)
            assert few["entries"] <= 2 * 8 * world


def test_a_change_on_one_rank_is_found_at_the_next_step(results: dict[int, list[dict[str, Any]]]) -> None:
    assert results[1][0]["changed later"] == "no error"
    for result in results[2] + results[4]:
        assert result["changed later"].startswith("3: the multipliers of 'a' are not the same on rank 0 and rank 1")


def test_where_everybody_sees_everything_the_mean_counts(results: dict[int, list[dict[str, Any]]]) -> None:
    for world in WORLDS:
        mean = sum(range(1, world + 1)) / world
        for result in results[world]:
            torch.testing.assert_close(result["everybody sees everything"], torch.full((40, 2), 2 * mean))


def test_what_is_observed_replaces_what_calls_saw(results: dict[int, list[dict[str, Any]]]) -> None:
    assert results[1][0]["observed"].tolist() == list(range(12))
    for world in WORLDS[1:]:  # the ranks that did not observe count with what their calls saw, as without shards
        expected = [[float(row), 1.0] if row % world else [float(row)] for row in range(12)]
        for rank, result in enumerate(results[world]):
            assert result["observed"].tolist() == [sum(one) / len(one) for one in expected[rank::world]]


def test_moving_or_copying_a_fence_in_mid_epoch_loses_nothing(results: dict[int, list[dict[str, Any]]]) -> None:
    for world in WORLDS:
        seen = [1.0] * 3 + [0.0 if world == 1 else 1.0] * 3
        for rank, result in enumerate(results[world]):
            assert result["moved"].tolist() == seen[rank::world]


def test_ranks_that_disagree_say_so_everywhere(results: dict[int, list[dict[str, Any]]]) -> None:
    assert results[1][0]["other constraints"] == "no error"
    assert results[1][0]["begun too early"] == "no error"
    for world in (2, 4):
        for rank, result in enumerate(results[world]):
            said = result["other constraints"]
            assert f"rank {0 if rank else 1} asks for others in this call than rank {rank}" in said
            assert f"limit{rank} [] of torch.float32" in said
            assert f"spread over 1 rank(s), and now there are {world}" in result["begun too early"]
            said = result["the state of another rank"]
            assert (
                said == "no error"
                if rank == 0
                else "lacks the multipliers of a; sharded, they are all in rank 0's" in said
            )


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "declare how many there are with samples=N"),
        ({"samples": 4, "shared": True}, "leave out shared=True"),
        ({"same_rows": True}, "leave out same_rows=True"),
        ({"multiplier": torch.nn.Linear(1, 1)}, "leave out multiplier="),
    ],
)
def test_what_cannot_be_sharded_is_refused_with_the_way_out(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        rf.Lagrangian(sharded=True, **options)


def test_sharded_multipliers_need_an_index_and_say_what_they_are() -> None:
    fence = rf.Lagrangian(samples=4, sharded=True)
    assert "each of 4 samples, spread over the ranks" in repr(fence)
    with pytest.raises(ValueError, match="index= is missing"):
        fence(a=torch.ones(2))


@pytest.mark.gpu
def test_multipliers_on_a_gpu_are_those_of_a_cpu(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(run_on_a_gpu, args=(2, str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"gpu-rank{rank}.pt", weights_only=True) for rank in (0, 1))
    for found in (first, second):
        for way in ("cuda, False", "cuda, True", "cpu, True"):
            torch.testing.assert_close(found[way]["losses"], found["cpu, False"]["losses"])
    for way in ("cuda, False", "cuda, True", "cpu, True"):
        torch.testing.assert_close(tables(first[way]["state"]), tables(first["cpu, False"]["state"]))
    torch.testing.assert_close(
        tables(second["cuda, False"]["state"]), tables(first["cuda, False"]["state"]), rtol=0, atol=0
    )


# The parts, against plain Python

rows_of_a_rank = st.lists(
    st.tuples(st.integers(0, 12), st.floats(-9, 9, width=32), st.integers(0, 3)),
    unique_by=lambda one: one[0],
    max_size=8,
)


def as_rows(entries: list[tuple[int, float, int]], wide: bool, dtype: torch.dtype = torch.float32) -> Rows:
    which = torch.tensor([one[0] for one in entries], dtype=torch.int64)
    sums = torch.tensor([[one[1], 2 * one[1]] for one in entries], dtype=dtype).reshape(-1, 2)
    counts = torch.tensor([[float(one[2])] for one in entries], dtype=dtype).reshape(-1, 1)
    return Rows(which, sums, counts.expand_as(sums).contiguous() if wide else counts)


@settings(deadline=None)
@given(st.lists(st.tuples(rows_of_a_rank, st.booleans()), min_size=1, max_size=4))
def test_rows_of_several_ranks_are_added_in_their_order(ranks: list[tuple[list[Any], bool]]) -> None:
    expected: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for entries, _ in ranks:
        for row, value, count in entries:
            expected[row][0] += value
            expected[row][1] += count
    found = merged([as_rows(entries, wide) for entries, wide in ranks])
    assert found.which.tolist() == sorted(expected)
    for row, sums, counts in zip(found.which.tolist(), found.sums, found.counts, strict=True):
        total = torch.tensor(expected[row][0], dtype=torch.float64).float()
        assert sums.tolist() == [total, torch.tensor(2 * expected[row][0], dtype=torch.float64).float()]
        assert set(counts.tolist()) == {expected[row][1]}


@settings(deadline=None)
@given(st.lists(st.tuples(rows_of_a_rank, st.booleans()), min_size=1, max_size=3))
def test_a_parcel_holds_what_was_put_in(tables: list[tuple[list[Any], bool]]) -> None:
    dtypes = [torch.float32, torch.float64, torch.float32]
    news = [as_rows(entries, wide, dtype) for (entries, wide), dtype in zip(tables, dtypes, strict=False)]
    lengths = list(range(5, 5 + len(news)))
    parcel = parcelled(news, lengths)
    assert len(parcel) == parcel_size(news)
    found_lengths, found = rows_in(parcel, [torch.empty(0, 2, dtype=one.sums.dtype) for one in news])
    assert found_lengths == lengths
    torch.testing.assert_close(found, news, rtol=0, atol=0)


@settings(deadline=None)
@given(st.lists(rows_of_a_rank, min_size=1, max_size=4), st.booleans())
def test_of_each_data_point_the_latest_call_counts(calls: list[list[Any]], wide: bool) -> None:
    expected = {row: (value, count) for call in calls for row, value, count in call}
    found = latest([as_rows(call, wide) for call in calls])
    assert dict(zip(found.which.tolist(), found.sums[:, 0].tolist(), strict=True)) == {
        row: value for row, (value, _) in expected.items()
    }


@given(st.integers(1, 9), st.lists(st.integers(0, 99), max_size=30))
def test_every_data_point_is_on_one_rank_in_one_row(ranks: int, index: list[int]) -> None:
    way = routes(torch.tensor(index, dtype=torch.int64), ranks)
    owners = [rank for rank, number in enumerate(way.number) for _ in range(number)]
    found = [row * ranks + owner for owner, row in zip(owners, way.rows.tolist(), strict=True)]
    assert found == [index[place] for place in way.order.tolist()]
    lengths = [shard_length(100, rank, ranks) for rank in range(ranks)]
    assert sum(lengths) == 100
    assert max(lengths) - min(lengths) <= 1


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 5, width=32), min_size=4, max_size=40),
    st.data(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_a_fingerprint_follows_changes_and_tells_them(values: list[float], data: Any, dtype: torch.dtype) -> None:
    table = torch.tensor(values, dtype=dtype)[: len(values) // 2 * 2].reshape(-1, 2)
    row = data.draw(st.integers(0, len(table) - 1))
    before, rows = fingerprint(table, 0.5), torch.tensor([row])
    changed = table.clone()
    changed[row, 1] += 1.0
    moved = before - fingerprint(table[rows], 0.5, rows) + fingerprint(changed[rows], 0.5, rows)
    assert moved == fingerprint(changed, 0.5) != before
    assert fingerprint(torch.cat([table, torch.full((3, 2), 0.5, dtype=dtype)]), 0.5) == before
    if not torch.equal(table, table.flip(0)):
        assert fingerprint(table.flip(0), 0.5) != before

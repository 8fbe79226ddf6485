"""The limit of memory: half of the machine's, or what a user says."""

from __future__ import annotations

import pytest

from ringfence import memory
from ringfence.cli import main


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4 * 10**9),
        ("500 MB", 5 * 10**8),
        ("1.5g", 15 * 10**8),
        ("2000", 2000),
        ("3kb", 3000),
        ("1TiB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert memory.parsed(text) == size


@pytest.mark.parametrize("text", ["", "much", "-4GB", "0", "4XB", "1e999GB", "9" * 40])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="it should be as 4GB or 500MB"):
        memory.parsed(text)


def test_the_limit_is_said_where_it_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, "2GB")
    memory.check(2 * 10**9, "a.nii.gz")
    with pytest.raises(
        ValueError,
        match=r"a.nii.gz would take 3.5 GB of memory, and the limit is 2 GB: .* allow more, .* RINGFENCE_MEMORY=5GB",
    ):
        memory.check(3_500_000_000, "a.nii.gz")


def test_by_default_it_is_half_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    assert 10**8 < memory.limit() == memory._machine() // 2


def test_the_command_line_can_set_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(memory.VARIABLE, "1GB")
    assert main(["--memory", "3GB", "info"]) == 0
    assert memory.limit() == 3 * 10**9
    assert main(["--memory", "much", "info"]) == 2
    assert "ringfence info: RINGFENCE_MEMORY (or --memory) is 'much'" in capsys.readouterr().err


def test_sizes_for_a_reader() -> None:
    shown = [memory.in_words(size) for size in (12, 1500, 2_500_000, 17_600_000_000, 5 * 10**15)]
    assert shown == ["12 bytes", "1.5 kB", "2.5 MB", "17.6 GB", "5,000,000 GB"]


def test_processes_side_by_side_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, "2GB")
    try:
        memory.divide(4)
        assert memory.limit() == 5 * 10**8
        with pytest.raises(
            ValueError, match=r"limit is 500 MB for each of 4 workers: .* allow more, as in RINGFENCE_MEMORY=8GB"
        ):
            memory.check(6 * 10**8, "a.nii.gz")
    finally:
        memory.divide(1)

"""Cases of any layout: what tells that a file changed, and which are for validation."""

from __future__ import annotations

from pathlib import Path

import pytest
from downloads import case, pack
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.datasets import find_promise12, with_validation
from ringfence.weak.datasets.source import SourceCase, SourceVolume, every_fifth


def test_what_a_file_was_is_noticed(tmp_path: Path) -> None:
    case(tmp_path / "a", 1)
    volume = SourceVolume(tmp_path / "a/Case01.mhd")
    before = volume.stamps()
    assert [stamp[0] for stamp in before] == ["Case01.mhd", "Case01.raw"]
    assert volume.stamps() == before
    (tmp_path / "a/Case01.raw").write_text("other")
    assert volume.stamps() != before


def test_what_a_member_of_a_zip_was_is_noticed(tmp_path: Path) -> None:
    """As of a file: its names and lengths, and checksums in the place of times."""
    case(tmp_path / "a", 1)
    pack(tmp_path / "z.zip", tmp_path / "a", "b/")
    before = SourceVolume(Path("b/Case01.mhd"), tmp_path / "z.zip").stamps()
    assert [stamp[:2] for stamp in before] == [["Case01.mhd", 10], ["Case01.raw", 10]]
    (tmp_path / "a/Case01.raw").write_text("another.ra")
    pack(tmp_path / "z.zip", tmp_path / "a", "b/")
    assert SourceVolume(Path("b/Case01.mhd"), tmp_path / "z.zip").stamps() != before
    with pytest.raises(FileNotFoundError, match=r"gone.nii cannot be read: No such file"):
        SourceVolume(tmp_path / "gone.nii").stamps()


@given(st.sets(st.integers(0, 999), max_size=60), st.integers(0, 20))
def test_every_fifth_with_a_mask(numbers: set[int], without: int) -> None:
    """Against counting by hand; a case without a mask is never for validation."""
    volume = SourceVolume(Path("x"))
    cases = [SourceCase(f"{number:03}", (volume,), volume) for number in numbers]
    cases += [SourceCase(f"no{number}", (volume,), None) for number in range(without)]
    chosen = every_fifth(reversed(cases))
    expected = {f"{number:03}" for place, number in enumerate(sorted(numbers), start=1) if place % 5 == 0}
    if 2 <= len(numbers) < 5:
        expected = {f"{max(numbers):03}"}
    assert chosen == expected


def test_validation_as_given(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        case(tmp_path, number)
    source = find_promise12(tmp_path)
    assert with_validation(source, ["Case03"]).validation == {"Case03"}
    with pytest.raises(ValueError, match=r"validation: there is no case Case33; did you mean 'Case03'\?"):
        with_validation(source, ["Case33"])

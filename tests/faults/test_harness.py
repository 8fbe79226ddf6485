"""The harness sees what it is there to see: every kind of fault, made on purpose, is counted as what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from children import python
from faults.broken import EXPECTED
from faults.fuzzing import OUTCOMES, message_fault


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, int]]:
    script = Path(__file__).parent / "broken.py"
    done = python(script)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_broken_reader_is_counted_as_what_it_is(counted: dict[str, dict[str, int]], fault: str) -> None:
    """Of 20 inputs four are read wrongly, four are refused; of the one that hangs, 8 and one."""
    found = counted[fault]
    faulty = 1 if fault == "hangs" else 4
    expected = dict.fromkeys(OUTCOMES, 0) | {"accepted": 12, "refused": 4, EXPECTED[fault]: faulty}
    if fault == "hangs":
        expected |= {"accepted": 6, "refused": 1}
    assert {name: found.get(name, 0) for name in OUTCOMES} == expected
    assert found["noted"] == found["kept"] == faulty


def test_a_reader_that_refuses_what_is_valid_is_not_called_safe(counted: dict[str, dict[str, int]]) -> None:
    assert counted["strict"]["valid refused"] == 2


def test_a_good_message_is_not_called_unclear() -> None:
    path = Path("/x/image.mha")
    assert message_fault(f"{path}: its header has NDims 'é\\x1b'; it should be 3\n  and more", path, True) is None
    assert message_fault("names nothing", path, False) is None
    assert message_fault("x\n" * 50, path, False) == "too long"

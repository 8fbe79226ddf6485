"""Words for messages, and names from other people's files: shown in a terminal, kept in a spreadsheet."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.hints import from_spreadsheet, hint, listed, one_line, printable, shown, spreadsheet

ANY = st.text(st.characters())


@given(ANY)
def test_nothing_that_moves_a_cursor_is_printed(text: str) -> None:
    """D13: against Unicode's own categories; what can be seen stays as it is."""
    shown = printable(text)
    assert not [one for one in shown if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one != "\n"]
    assert shown.count("\n") == text.count("\n")
    assert len(one_line(text).splitlines()) <= 1
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain: é, ≤, 前立腺", "plain: é, ≤, 前立腺"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\u202eb", "a\\u202eb"),
        ("a\rb\tc", "a\\rb\\tc"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_control_codes_are_shown(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert one_line(text) == shown.replace("\n", "\\n")


@given(st.text())
def test_a_cell_is_no_formula_and_comes_back(text: str) -> None:
    """D13: OWASP's list of how a formula begins; and any name can be had back, also one that looks escaped."""
    cell = spreadsheet(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert from_spreadsheet(cell) == text
    assert cell in (text, f"'{text}")


@pytest.mark.parametrize("text", ["=1+1", "'=1", "''@x", "-2", "+", "\t=1", "＝1", "a=1", "'a", "'"])
def test_cells_by_hand(text: str) -> None:
    assert spreadsheet(text) == (text if text in ("a=1", "'a", "'") else f"'{text}")
    assert from_spreadsheet(spreadsheet(text)) == text


def test_names_in_lists_are_shown_in_one_line() -> None:
    assert listed(["a\nb", "\x1b[1m"]) == "a\\nb, \\x1b[1m"
    assert hint("ab", ["a\x1bb"]) == "did you mean 'a\\x1bb'?"


def test_a_name_that_is_no_text_can_be_written_and_shown() -> None:
    """D13: one case whose name is not UTF-8 cost all scores of an evaluation."""
    assert spreadsheet("u\udcff").encode("utf-8") == b"u\\udcff"
    assert one_line("u\udcff") == "u\\udcff"
    assert "too long to show" in shown(16**9000)

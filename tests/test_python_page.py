"""docs/python.md as a reader runs it: every block of the page, in its order, in one session."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ringfence.weak.training.methods import METHODS

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the page leaves behind, and under ``printed`` what each block printed."""
    folder, before = tmp_path_factory.mktemp("page"), dict(METHODS)
    page = ModuleType("the_python_page")
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        patch.setitem(sys.modules, page.__name__, page)  # where its classes say that they are from
        warnings.filterwarnings("ignore", category=UserWarning, module="pytorch_lightning")  # its advice to readers
        warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")
        torch.manual_seed(0)
        for number, block in enumerate(BLOCKS):
            text = StringIO()
            with redirect_stdout(text):
                code = compile(block, f"block {number} of docs/python.md", "exec", dont_inherit=True)
                exec(code, vars(page))  # our own page
            printed.append(text.getvalue())
        yield vars(page) | {"printed": printed, "folder": folder}
    METHODS.clear()
    METHODS.update(before)


def test_the_page_runs_from_top_to_bottom(session: dict[str, Any]) -> None:
    assert len(session["printed"]) == len(BLOCKS) >= 10
    assert (session["folder"] / "runs" / "ball" / "model.safetensors").exists()


def test_what_a_comment_promises_is_printed(session: dict[str, Any]) -> None:
    """A comment behind ``print(...)`` that has dots in it shows what comes; dots and numbers stand for anything."""
    checked = 0
    for block, printed in zip(BLOCKS, session["printed"], strict=True):
        for promise in re.findall(r"^print\(.*\)  # (.*\.\.\..*)$", block, re.MULTILINE):
            if re.fullmatch(r"[\w/ ,.]+, \.\.\.", promise):  # names, some of many
                missing = [word for word in re.findall(r"[\w/]+", promise) if word not in printed]
                assert not missing, (promise, printed)
            else:
                pattern = ".*".join(re.escape(part) for part in promise.split("..."))
                assert re.search(pattern, printed, re.DOTALL), (promise, printed)
            checked += 1
    assert checked >= 4


def test_the_model_of_the_page_is_worth_something(session: dict[str, Any]) -> None:
    """A bright ball in noise, from boxes: were the settings of the page wrong, its Dice would be near 0."""
    assert session["scores"].dice[1] > 0.5
    assert session["found"].mask.shape == session["scan"].shape
    assert "linear_penalty" in METHODS

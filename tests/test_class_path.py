"""Objects by their path, also from the current folder; every mistake in one line."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from ringfence.class_path import find


def test_installed_modules_and_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("collections.OrderedDict", "kind") is OrderedDict
    (tmp_path / "found_here.py").write_text("class Mine: pass\nVALUE = 3\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert find("found_here.VALUE", "kind") == 3
    assert find("found_here.Mine", "kind").__module__ == "found_here"
    assert sys.path == before
    sys.modules.pop("found_here")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("OrderedDict", "kind: 'OrderedDict' needs its module, as in my_module.MyClass"),
        ("collections.", "kind: 'collections.' needs its module"),
        ("nowhere.Thing", "kind: there is no module 'nowhere' for 'nowhere.Thing'"),
        ("collections.OrderDict", "kind: collections has no 'OrderDict'; did you mean 'OrderedDict'?"),
        ("collections.zzz", "kind: collections has no 'zzz'"),
        ("broken_module.Thing", "kind: 'broken_module' cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_not_there(path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - all of the message is compared
        find(path, "kind")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)

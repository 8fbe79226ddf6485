"""What all readers of COCO need: whether JSON is it, its ids, and which case and slice an image is."""

from __future__ import annotations

import re
from typing import Any, Final

NAME: Final = re.compile(r"(?P<case>.+)[_/](?P<slice>[0-9]{1,9})(\.[A-Za-z][A-Za-z0-9]*)*")
"""CASE_SLICE.png or CASE/SLICE.png; folders before that do not matter."""


def is_coco(content: Any) -> bool:
    """Whether parsed JSON looks like COCO."""
    return isinstance(content, dict) and ("images" in content or "annotations" in content)


def identity(value: Any) -> str:
    """An id that can be looked up, whatever JSON value it is: 1, 1.0 and "1" differ in type, not in meaning."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def file_of(file_name: Any) -> str:
    """An image's file, without the folders before it."""
    return str(file_name).strip().replace("\\", "/").rpartition("/")[2]


def stem(file_name: Any) -> str:
    """An image's file without its ending: its case, if that is a single slice."""
    file = file_of(file_name)
    return file.rpartition(".")[0] or file


def case_and_slice(file_name: Any) -> tuple[str, int] | None:
    """The names of an image's case and slice; None if it does not say."""
    match = NAME.fullmatch(str(file_name).strip().replace("\\", "/"))
    return (match["case"].rpartition("/")[2], int(match["slice"])) if match else None

"""What a layout of data sets is: a name, words for its help, and a function that finds the cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ringfence.weak.datasets.box_table import table_beside
from ringfence.weak.datasets.source import Source

Spacing: TypeAlias = float | Literal["auto", "none"]


@dataclass(frozen=True)
class Option:
    """An option that a layout has of its own: ``--name VALUE`` of the command, ``name=`` of its ``find``.

    Attributes:
        name: as a Python keyword; hyphens for underscores on the command line.
        help: one line.
        type: what makes a value of the command line's text.
        metavar: what the help calls the value.
    """

    name: str
    help: str
    type: Callable[[str], Any] = str
    metavar: str = "VALUE"


@dataclass(frozen=True)
class Layout:
    """How a data set lies on a disk as it was downloaded.

    To add one, write a file with such an object and name it in ``registry.LAYOUTS``; or keep it in a module of your
    own, and call it by its path: ``ringfence prepare my_module.MY_LAYOUT SRC DST``.

    Attributes:
        name: on the command line.
        description: one line.
        find: ``find(path, validation=None, **options)`` returns the :class:`Source` at ``path``. With names of
            cases as ``validation``, exactly these are for validation (:func:`with_validation` does that); else the
            layout's own split.
        help: what the command's help says of it.
        source: what SRC should be.
        size: default height and width of prepared slices; None: the medians of the cases, up to a multiple of 16.
        spacing: default millimetres between their pixels; or "auto": a common one where cases differ; or "none".
        options: those of its own; each is a keyword of ``find``.
    """

    name: str
    description: str
    find: Callable[..., Source]
    help: str = ""
    source: str = "the data set as downloaded"
    size: tuple[int, int] | None = None
    spacing: Spacing = "auto"
    options: tuple[Option, ...] = ()

    def source_at(self, path: Path, validation: Sequence[str] | None = None, **options: Any) -> Source:
        """What ``find`` finds, with the table of boxes in this folder, if there is one."""
        found = self.find(path, validation=validation, **options)
        return found if found.boxes else replace(found, boxes=table_beside(path))

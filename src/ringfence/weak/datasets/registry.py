"""All layouts of data sets by name, and a user's own by its path."""

from __future__ import annotations

from typing import Final

from ringfence.class_path import find
from ringfence.hints import hint
from ringfence.weak.datasets.decathlon import DECATHLON
from ringfence.weak.datasets.folder import FOLDER
from ringfence.weak.datasets.layout import Layout
from ringfence.weak.datasets.nnunet import NNUNET
from ringfence.weak.datasets.promise12 import PROMISE12

LAYOUTS: Final[dict[str, Layout]] = {layout.name: layout for layout in (PROMISE12, FOLDER, NNUNET, DECATHLON)}


def layout_named(name: str | Layout) -> Layout:
    """The layout of this name; with a dot in it, ``my_module.MY_LAYOUT``, also from the current folder."""
    if isinstance(name, Layout):
        return name
    if name in LAYOUTS:
        return LAYOUTS[name]
    if "." not in name:
        raise ValueError(
            f"there is no layout '{name}'; {hint(name, LAYOUTS)} (or one of your own, as my_module.MY_LAYOUT)"
        )
    found = find(name, "layout")
    if not isinstance(found, Layout):
        raise ValueError(
            f"layout: '{name}' is not a Layout (ringfence.weak.datasets.Layout) but {type(found).__name__}"
        )
    return found

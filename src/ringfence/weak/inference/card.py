"""A model's card: what the network is, and expects of an image. Every field is checked before any is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from ringfence.documents import check_values
from ringfence.hints import hint, shown
from ringfence.weak.prepared.prepared_set import checked_labels
from ringfence.weak.prepared.preprocessing import LARGEST, Preprocessing
from ringfence.weak.training.settings import HALF_TURN, MOST_OF_NEIGHBOUR, flip_axes

MOST: Final = 255
"""Channels, or classes: a mask has a byte for each voxel."""
LONGEST: Final = 200
"""Characters of a name."""
VALUES: Final = 10_000
"""Of the network's arguments, all together."""
FARTHEST: Final = 20.0
"""Of levels: e^20 to one, about what float32 tells from certainty."""
_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


@dataclass(frozen=True)
class ModelCard:
    """What a model is, and expects.

    Attributes:
        class_path: of the network.
        init_args: of the network.
        channels: names of the images' channels.
        classes: names of the foreground classes, in the order of the network's answers.
        preprocessing: how voxels become what the network reads.
        patch: None for slices; slices, height and width of the patches of a model of volumes.
        method: how it was trained.
        commit: of the code that trained it.
        labels: the classes' values in masks, in the same order; default: 1, 2, ...
        flips: what its predictions are averaged over, by the names of ``FLIPS``.
        levels: what its logits have for each class since the training was calibrated, and the mean over views has
            instead of each (``mean_of``); none if it was not, or by an earlier version.
        turns: degrees by which images are turned, beside none: predictions are averaged over these, too.
        neighbours: the share of each neighbouring slice in what is found in a slice (``with_neighbours``).
    """

    class_path: str
    init_args: dict[str, Any]
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    patch: tuple[int, int, int] | None = None
    method: str = ""
    commit: str = ""
    labels: tuple[int, ...] = ()
    flips: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    turns: tuple[float, ...] = ()
    neighbours: float = 0.0

    def __post_init__(self) -> None:
        flip_axes(self.flips)
        object.__setattr__(self, "labels", checked_labels(self.labels, self.classes))

    def to_facts(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        facts = asdict(self) | {"preprocessing": self.preprocessing.to_facts()}
        for name in ("levels", "turns", "neighbours"):  # so that earlier versions read models that have none
            if not facts[name]:
                del facts[name]
        return facts

    @classmethod
    def from_facts(cls, facts: Any) -> ModelCard:
        """What :meth:`to_facts` described, also as earlier versions did; a ValueError names what is wrong."""
        if not isinstance(facts, Mapping) or not all(isinstance(name, str) for name in facts):
            raise ValueError(f"the card is {shown(facts)}; names and values are needed")
        check_values(_listed(facts), "the card")
        known = [one.name for one in fields(cls)]
        facts = _today(dict(facts))
        if unknown := [name for name in facts if name not in known]:
            raise ValueError(f"{shown(unknown[0])} is none of a card's fields: {hint(unknown[0], known)}")
        if missing := [name for name in known[:5] if name not in facts]:
            raise ValueError(f"the card has no {missing[0]}")
        card = cls(
            class_path=_class_path(facts["class_path"]),
            init_args=_arguments(facts["init_args"]),
            channels=_names("channels", facts["channels"]),
            classes=_names("classes", facts["classes"]),
            preprocessing=Preprocessing.from_facts(facts["preprocessing"]),
            patch=_patch(facts.get("patch")),
            method=_text("method", facts.get("method", "")),
            commit=_text("commit", facts.get("commit", "")),
            labels=_labels(facts.get("labels", ())),
            flips=_names("flips", facts.get("flips", ()), least=0),
            levels=_levels(facts.get("levels", ())),
            turns=_turns(facts.get("turns", ())),
            neighbours=_neighbours(facts.get("neighbours", 0.0)),
        )
        if card.levels and len(card.levels) != len(card.classes):
            raise ValueError(
                f"levels are {list(card.levels)}; one for each of {len(card.classes)} classes is needed"
            )
        if card.patch is None and "slices" in card.flips:
            raise ValueError("a model of slices, flipped along slices")
        if card.patch is not None and card.neighbours:
            raise ValueError("a model of volumes, averaged over neighbouring slices")
        return card


def _today(facts: dict[str, Any]) -> dict[str, Any]:
    """Earlier facts as today's: the first format had a size, and mirrors for flips."""
    if "preprocessing" not in facts and "size" in facts:
        size = facts.pop("size")
        facts["preprocessing"] = {
            "size": list(size) if isinstance(size, tuple) else size,
            "percentiles": [0.5, 99.5],
        }
        facts["flips"] = facts.pop("mirrors", ())
    facts.pop("smoothing", None)  # one version had it, and it gained next to nothing
    return facts


def _listed(value: Any) -> Any:
    """Tuples as lists, as JSON would have them. Depth is bounded by whoever read the file."""
    if isinstance(value, Mapping):
        return {name: _listed(one) for name, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, (list, tuple)) else value


def _text(field: str, value: Any, least: int = 0) -> str:
    if not isinstance(value, str) or not least <= len(value) <= LONGEST or not value.isprintable():
        raise ValueError(f"{field} is {shown(value)}; text of at most {LONGEST} characters is needed")
    return value


def _class_path(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST or not _PATH.fullmatch(value):
        raise ValueError(f"class_path is {shown(value)}; a module and a class are needed, as in my_module.MyClass")
    return value


def _names(field: str, value: Any, least: int = 1) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not least <= len(value) <= MOST:
        raise ValueError(f"{field} are {shown(value)}; {least} to {MOST} names are needed")
    names = tuple(_text(f"one of the {field}", name, least=1) for name in value)
    if len(set(names)) < len(names) and field != "flips":  # flips have a message of their own
        raise ValueError(f"{field} are {shown(value)}: two have the same name")
    return names


def _patch(value: Any) -> tuple[int, int, int] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 3 or not all(_is_side(side) for side in value):
        raise ValueError(f"patch is {shown(value)}; three whole numbers between 1 and {LARGEST} are needed")
    return (value[0], value[1], value[2])


def _is_side(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LARGEST


def _labels(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MOST:
        raise ValueError(f"labels are {shown(value)}; a whole number for each class is needed")
    if not all(type(label) is int for label in value):
        raise ValueError(f"labels are {shown(value)}; whole numbers are needed")
    return tuple(value)


def _levels(value: Any) -> tuple[float, ...]:
    numbers = isinstance(value, (list, tuple)) and all(type(one) in (int, float) for one in value)
    if not numbers or not all(-FARTHEST <= one <= FARTHEST for one in value):
        raise ValueError(f"levels are {shown(value)}; numbers between {-FARTHEST:g} and {FARTHEST:g} are needed")
    return tuple(float(one) for one in value)


def _turns(value: Any) -> tuple[float, ...]:
    numbers = isinstance(value, (list, tuple)) and all(type(one) in (int, float) for one in value)
    if not numbers or len(value) > MOST or not all(0.0 < abs(one) <= HALF_TURN for one in value):
        raise ValueError(f"turns are {shown(value)}; degrees up to {HALF_TURN:g} to either side are needed")
    return tuple(float(one) for one in value)


def _neighbours(value: Any) -> float:
    if type(value) not in (int, float) or not 0.0 <= value <= MOST_OF_NEIGHBOUR:
        raise ValueError(f"neighbours are {shown(value)}; a share of each from 0 to 1/3 is needed")
    return float(value)


def _arguments(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in value):
        raise ValueError(f"init_args are {shown(value)}; arguments by name are needed")
    seen = 0
    level: list[Any] = [value]
    while level:
        seen += len(level)
        if seen > VALUES:
            raise ValueError(f"init_args have more than {VALUES:,} values")
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, (list, tuple)):
                inner += one
            elif not (one is None or isinstance(one, (bool, int, float, str))):
                raise ValueError(f"init_args have {shown(one)}; plain values are needed")
        level = inner
    return dict(value)

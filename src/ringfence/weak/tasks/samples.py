"""From a prepared set and its weak labels to rows: slices, or whole volumes and tiles of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.weak.annotations import (
    BoxAnnotation,
    SizeAnnotation,
    place_boxes,
    place_sizes,
    place_volume_boxes,
    place_volume_sizes,
    read_boxes,
    read_sizes,
)
from ringfence.weak.annotations.from_masks import boxes_from_masks
from ringfence.weak.constraints.bounds import centroid_bounds, size_bounds
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.training.augmentation import cut, padded
from ringfence.weak.training.box_settings import BoxDataSettings, LimitSettings

Rows = dict[str, Tensor]


@dataclass(frozen=True)
class Labels:
    """The weak labels of a set.

    Attributes:
        boxes: from a file; None where boxes are taken from the masks.
        sizes: from a file; None where there are none.
        margin: pixels by which boxes may be too wide on every side.
        boxed: whether boxes are limits at all.
        size_slack: of size bounds taken from the masks, as a share; None where there are none.
        centroid_slack: of centroid bounds taken from the masks, in pixels; None where there are none.
    """

    boxes: list[BoxAnnotation] | None
    sizes: list[SizeAnnotation] | None
    margin: int
    boxed: bool
    size_slack: float | None
    centroid_slack: float | None


def check_memory(prepared: PreparedSet, free: int | None = None) -> None:
    """Refuse a set that memory cannot hold: a system that runs out of it ends the program without a word.

    Args:
        prepared: the set, all of which is read.
        free: bytes that can be had; asked from Linux unless given, and not known elsewhere.
    """
    free = _available() if free is None else free
    pixels = sum(case.shape[0] for case in prepared.cases) * prepared.size[0] * prepared.size[1]
    needed = 2 * pixels * (len(prepared.channels) + len(prepared.classes))  # a byte each; twice while put together
    if free is not None and needed > free:
        raise ValueError(
            f"{prepared.path} needs about {needed / 1e9:.1f} GB of memory to train on, and {free / 1e9:.1f} GB can "
            "be had: prepare it with a smaller --size, or fewer cases"
        )


def _available() -> int | None:
    file = Path("/proc/meminfo")
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def read_labels(data: BoxDataSettings, limits: LimitSettings, prepared: PreparedSet) -> Labels:
    """The weak labels that the settings name."""
    for name in ("size_slack", "centroid_slack"):
        if getattr(limits, name) is not None and not any(case.masked for case in prepared.of("train")):
            raise ValueError(f"limits.{name} is about masks, and no training case of {prepared.path} has one")
    if data.sizes is not None and limits.size_slack is not None:
        raise ValueError("sizes are bounded by data.sizes or by limits.size_slack: give one of them")
    return Labels(
        None if data.boxes is None else read_boxes(data.boxes, prepared),
        None if data.sizes is None else read_sizes(data.sizes, prepared),
        data.margin,
        limits.box,
        limits.size_slack,
        limits.centroid_slack,
    )


def slice_rows(prepared: PreparedSet, cases: Sequence[Case], labels: Labels) -> Rows:
    """A row for each slice: ``image``, ``mask``, ``box``, ``whole``, ``margin``, ``case``; size bounds if any."""
    rows = [_case_rows(prepared, case, number, labels) for number, case in enumerate(cases)]
    return {name: torch.cat([one[name] for one in rows]) for name in rows[0]}


def volume_rows(prepared: PreparedSet, cases: Sequence[Case], labels: Labels, patch: tuple[int, int, int]) -> Rows:
    """A row for each case, all padded to the same number of slices, and to no less than a patch."""
    rows = [_volume(prepared, case, number, labels) for number, case in enumerate(cases)]
    shape = [max(patch[axis], *(one["image"].shape[2 + axis] for one in rows)) for axis in range(3)]
    for one in rows:
        for name in ("image", "mask"):
            one[name] = padded(one[name], shape)
    return {name: torch.cat([one[name] for one in rows]) for name in rows[0]}


def tile_rows(prepared: PreparedSet, cases: Sequence[Case], labels: Labels, patch: tuple[int, int, int]) -> Rows:
    """Cases in tiles beside each other; ``judged`` is False where a tile is beyond its volume."""
    tiles: list[Rows] = []
    for number, case in enumerate(cases):
        volume = _volume(prepared, case, number, labels)
        space = volume["image"].shape[2:]
        shape = [-(-length // size) * size for length, size in zip(space, patch, strict=True)]
        judged = padded(torch.ones(1, 1, *space, dtype=torch.bool), shape)[:, 0]
        image, mask = padded(volume["image"], shape), padded(volume["mask"], shape)
        starts = [range(0, length, size) for length, size in zip(shape, patch, strict=True)]
        for start in torch.cartesian_prod(*(torch.tensor(list(one)) for one in starts)):
            tile = volume | cut(volume["box"], volume["whole"], start, torch.tensor(patch))
            tile |= {"image": image, "mask": mask, "judged": judged}
            tile |= {name: volume[name] - start for name in ("centroid_low", "centroid_high") if name in volume}
            for axis, (first, size) in enumerate(zip(start.tolist(), patch, strict=True)):
                for name in ("image", "mask", "judged"):
                    tile[name] = tile[name].narrow(tile[name].ndim - 3 + axis, first, size)
            tiles.append(tile)
    return {name: torch.cat([one[name] for one in tiles]) for name in tiles[0]}


def _case_rows(prepared: PreparedSet, case: Case, number: int, labels: Labels) -> Rows:
    image, found = prepared.load(case)
    mask = _masks(found, case, prepared)
    noted = _noted(labels.boxes, case)
    classes = len(prepared.classes)
    if noted:
        box = torch.from_numpy(place_boxes(noted, case, prepared.size, classes))
    else:
        box = boxes_from_masks(mask, labels.margin)
    rows = _labelled(torch.from_numpy(image), mask, box, _margin(noted, case, prepared, labels))
    rows["case"] = torch.full((len(image),), number if case.masked else -1 - number)
    if labels.sizes is not None:
        low, high = place_sizes(labels.sizes, case, prepared.size, classes)
        rows |= {"size_low": torch.from_numpy(low), "size_high": torch.from_numpy(high)}
        _check_sizes(rows, case, prepared, labels)
    return rows | _bounds(mask, case, labels)


def _volume(prepared: PreparedSet, case: Case, number: int, labels: Labels) -> Rows:
    """A case as one row: image ``[1, C, D, H, W]``, mask ``[1, K, D, H, W]``, box ``[1, K, 3, 2]``."""
    image, found = prepared.load(case)
    mask = _masks(found, case, prepared).transpose(0, 1)[None]
    noted = _noted(labels.boxes, case)
    classes = len(prepared.classes)
    if noted:
        box = torch.from_numpy(place_volume_boxes(noted, case, prepared.size, classes))[None]
    else:
        box = boxes_from_masks(mask, labels.margin)
    margin = [labels.margin, *_margin(noted, case, prepared, labels)]
    rows = _labelled(torch.from_numpy(image).transpose(0, 1)[None], mask, box, margin)
    rows["case"] = torch.tensor([number if case.masked else -1 - number])
    if labels.sizes is not None:
        low, high = place_volume_sizes(labels.sizes, case, prepared.size, classes)
        rows |= {"size_low": torch.from_numpy(low)[None], "size_high": torch.from_numpy(high)[None]}
        _check_sizes(rows, case, prepared, labels)
    return rows | _bounds(mask, case, labels)


def _check_sizes(rows: Rows, case: Case, prepared: PreparedSet, labels: Labels) -> None:
    """Refuse a size that no box has room for: both are limits, and no mask could keep them."""
    sides = (rows["box"][..., 1] - rows["box"][..., 0]).clamp(min=0)
    room = sides.prod(dim=-1)
    wrong = (rows["size_low"] > room).nonzero().tolist() if labels.boxed else []
    if not wrong:
        return
    row, label = wrong[0]
    place = case.name + (f", slice {row}" if len(room) > 1 else "")
    scale = (case.shape[1] * case.shape[2]) / (prepared.size[0] * prepared.size[1])
    least, most = rows["size_low"][row, label].item() * scale, room[row, label].item() * scale
    holds = f"its box holds {most:.0f}" if most else "there is no box of it"
    raise ValueError(
        f"{place}: data.sizes asks for at least {least:.0f} voxels of {prepared.classes[label]}, and {holds}: "
        "correct one of the two"
    )


def _bounds(mask: Tensor, case: Case, labels: Labels) -> Rows:
    """What the masks say about sizes and centroids, if asked; a case without a mask has no bounds."""
    bounds: Rows = {}
    if labels.size_slack is not None:
        size = size_bounds(mask, labels.size_slack)
        bounds |= {"size_low": size.low, "size_high": size.high}
    if labels.centroid_slack is not None:
        centroid = centroid_bounds(mask, labels.centroid_slack)
        bounds |= {"centroid_low": centroid.low, "centroid_high": centroid.high}
    if not case.masked:
        infinite = {"low": -torch.inf, "high": torch.inf}
        bounds = {name: torch.full_like(one, infinite[name.partition("_")[2]]) for name, one in bounds.items()}
    return bounds


def _labelled(image: Tensor, mask: Tensor, box: Tensor, margin: list[int]) -> Rows:
    return {
        "image": image,
        "mask": mask,
        "box": box,
        "whole": torch.ones(box.shape[:-1], dtype=torch.bool),
        "margin": torch.tensor(margin).expand(len(box), -1),
    }


def _noted(boxes: Iterable[BoxAnnotation] | None, case: Case) -> list[BoxAnnotation]:
    """The file's boxes of a case; a case that the file does not know must have masks to take them from."""
    noted = [note for note in boxes or () if note.case == case.name]
    if not noted and not case.masked:
        raise ValueError(f"{case.name} has neither a mask nor a box: give boxes by data.boxes")
    return noted


def _margin(noted: list[BoxAnnotation], case: Case, prepared: PreparedSet, labels: Labels) -> list[int]:
    """Rows and columns. Boxes from a file were rounded outwards if slices were resized: a pixel may be too much."""
    return 2 * [labels.margin + int(bool(noted) and case.shape[1:] != prepared.size)]


def _masks(labels: NDArray[np.uint8] | None, case: Case, prepared: PreparedSet) -> Tensor:
    """bool ``[slices, classes, height, width]``; all False where there are none."""
    shape = (case.shape[0], len(prepared.classes), *prepared.size)
    if labels is None:
        return torch.zeros(shape, dtype=torch.bool)
    found = torch.from_numpy(labels)
    return torch.stack([found == number for number in range(1, 1 + shape[1])], dim=1)

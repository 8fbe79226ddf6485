"""How a batch of images moves: flips, shifts, scaling along the axes, and crops.

Never turns: the box of a turned object is not the turned box. Where a network is asked about turned images
(``segmentation/turning.py``), its answer is turned back to where boxes are; a motion says what was out of sight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ringfence.segmentation.turning import boxes_in_sight, places_in_sight


@dataclass(frozen=True)
class Motion:
    """x' = s·(x - m) + c along each axis, then cut to the pixels 0 to ``window``: where each sample's content goes.

    Coordinates are of edges: pixel p is from p to p + 1. A flip has s < 0.

    Attributes:
        scale: s, float ``[batch, axes]``.
        middle: m, the middle of the images, ``[axes]``.
        centre: c, where that goes, ``[batch, axes]`` (a first dimension of 1 broadcasts).
        window: how many pixels are left along each axis, int64 ``[axes]``.
        turn: by which angle images are turned when the network sees them, radians ``[batch]``; None: by none.
    """

    scale: Tensor
    middle: Tensor
    centre: Tensor
    window: Tensor
    turn: Tensor | None = None
    _boxes: dict[tuple[int, int], tuple[Tensor, ...]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def resampled(cls, scale: Tensor, shift: Tensor, size: Sequence[int], turn: Tensor | None = None) -> Motion:
        """Scaled about the middle, and shifted by a fraction ``shift`` of the image; ``size`` stays."""
        space = _lengths(tuple(size), scale.device)
        middle = space / 2
        return cls(scale, middle, middle + shift * space, space, turn)

    @classmethod
    def crop(cls, start: Tensor, size: Sequence[int], window: Sequence[int]) -> Motion:
        """A window of each image, which begins at pixel ``start`` (int64 ``[batch, axes]``)."""
        middle = _lengths(tuple(size), start.device) / 2
        return cls(
            torch.ones_like(start, dtype=middle.dtype),
            middle,
            middle - start,
            _lengths(tuple(window), start.device),
        )

    @property
    def content(self) -> Tensor:
        """By how much sizes grow: ``[batch, 1]``."""
        return self.scale.abs().prod(dim=1, keepdim=True)

    def intervals(self, ends: Tensor) -> Tensor:
        """Where intervals ``[batch, ..., axes, 2]`` go, lower end first."""
        between = [1] * (ends.ndim - 3)
        scale = self.scale.view(len(self.scale), *between, -1, 1)
        centre = self.centre.view(len(self.centre), *between, -1, 1)
        moved = (ends - self.middle[:, None]) * scale + centre
        return moved.sort(dim=-1).values

    def boxes(self, boxes: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes ``[batch, ..., axes, 2]`` as they are seen afterwards, and along which axes their strips are whole.

        A strip across a box, perpendicular to an axis, is as full as promised only if the box was not cut along any
        other axis; strips beyond the window are simply gone. A box that is turned out of sight, or some of it,
        promises nothing. Asked again about the same boxes (several constraints read them), it answers with the same
        tensors.
        """
        known = id(boxes), id(whole)
        if known not in self._boxes:
            # a pixel belongs to the box if its centre does
            moved = (self.intervals(boxes) - 0.5).ceil().long()
            there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
            # both are kept, so that no other tensor has their ids
            self._boxes[known] = (*self._cut(moved * there[..., None, None], whole), boxes, whole)
        inside, still_whole, *_ = self._boxes[known]
        return inside, still_whole

    def uncut(self, boxes: Tensor, whole: Tensor) -> Tensor:
        """Whether nothing of a box is cut off, or out of sight: bool ``[batch, ...]``; True of empty ones.

        Asked as ``boxes``.
        """
        self.boxes(boxes, whole)
        return self._boxes[id(boxes), id(whole)][2]

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Where pixels ``[batch, points, axes]`` are seen afterwards; and whether they are, ``[batch, points]``.

        A pixel goes to the one that its middle falls into. Where images shrink, a pixel shows but one of those that
        fall into it, the nearest to its own middle, as in masks. The others are gone, and those beyond the window
        or out of sight.
        """
        scale = self.scale.unsqueeze(1)
        middle = (points + 0.5 - self.middle) * scale + self.centre.unsqueeze(1)
        moved = middle.floor()
        shown = (moved + 0.5 - middle).abs() <= 0.5 * scale.abs()
        seen = (shown & (moved >= 0) & (moved < self.window)).all(dim=-1)
        if self.turn is not None:
            seen &= places_in_sight(moved[..., -2:] + 0.5, self.turn, self.window[-2:])
        return torch.where(seen.unsqueeze(-1), moved, 0.0).to(points.dtype), seen

    def _cut(self, boxes: Tensor, whole: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inside = torch.minimum(boxes.clamp(min=0), self.window.unsqueeze(-1))
        uncut = (inside == boxes).all(dim=-1)
        axes = uncut.shape[-1]
        # a list as index would be copied to a GPU, which waits for it
        but_one = [torch.cat([uncut[..., :axis], uncut[..., axis + 1 :]], dim=-1) for axis in range(axes)]
        others = torch.stack([one.all(dim=-1) for one in but_one], dim=-1)
        there = (inside[..., 1] > inside[..., 0]).all(dim=-1)
        inside, whole, uncut = inside * there[..., None, None], whole & others, uncut.all(dim=-1)
        if self.turn is None:
            return inside, whole, uncut
        seen = ~there | boxes_in_sight(inside[..., -2:, :], self.turn, self.window[-2:])
        return inside, whole & seen.unsqueeze(-1), uncut & seen


@lru_cache(maxsize=64)
def _lengths(size: tuple[int, ...], device: torch.device) -> Tensor:
    """As a tensor, made once: a copy from the CPU would have a GPU wait, and cannot be recorded in a CUDA graph."""
    return torch.tensor(size, device=device)

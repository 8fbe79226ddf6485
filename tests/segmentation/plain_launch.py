"""The launches of ringfence.segmentation.fused by plain operations: what surrounds the kernels, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ringfence.segmentation.fused.cut import Cut, Slopes, Sums
from ringfence.segmentation.plain import PlainSums, centroid_of, probability_map
from ringfence.segmentation.strips import straight_strips

passes: list[str] = []
"""What was done, in order: every entry is a pass over the logits."""


def measures(logits: Tensor, boxes: Tensor | None, cut: Cut, scale: float) -> tuple[Sums, PlainSums]:
    maps = probability_map(logits, tuple(range(cut.first, cut.first + cut.count)), 1.0 / scale)
    plain = PlainSums(maps)
    sums = plain.sums
    size = sums[0].sum(dim=-1)
    whole = (sums, size, centroid_of(sums, size))
    if boxes is None:
        return Sums(*whole), plain
    return Sums(*whole, tuple(plain.along(boxes)), plain.inside(boxes), plain.outside(boxes)), plain


def forward(logits: Tensor, boxes: Tensor | None, cut: Cut, scale: float) -> Sums:
    passes.append("forward")
    return measures(logits, boxes, cut, scale)[0]


def strips(
    along: Sequence[Tensor], boxes: Tensor, width: int, margin: Tensor | None, space: Any
) -> tuple[Tensor, Tensor, Tensor]:
    made = straight_strips(along, boxes, width, margin)
    return made.sums, made.widths, made.mask


def backward(logits: Tensor, boxes: Tensor | None, cut: Cut, scale: float, slopes: Slopes) -> Tensor:
    passes.append("backward")
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        found, plain = measures(leaf, boxes, cut, scale)
        pairs = [*zip(found.sums, slopes.sums, strict=True), (found.size, slopes.size)]
        pairs += [(found.centroid, slopes.centroid), *zip(found.along, slopes.along or [None] * 3, strict=False)]
        pairs += [(found.inside, slopes.inside), (found.outside, slopes.outside)]
        if slopes.strips is not None and boxes is not None:
            made = straight_strips(plain.along(boxes), boxes, slopes.width, slopes.margin)
            pairs.append((made.sums, slopes.strips))
        pairs = [(one, slope) for one, slope in pairs if slope is not None]
        if not pairs:
            return torch.zeros_like(logits)
        outputs, given = zip(*pairs, strict=True)
        return torch.autograd.grad(outputs, leaf, given)[0]

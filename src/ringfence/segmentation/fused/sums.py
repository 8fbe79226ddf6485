"""The fused sums as autograd sees them: all measures of one map have their gradient in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor

from ringfence.extras import installed
from ringfence.segmentation.fused.cut import Cut, Slopes, Sums
from ringfence.segmentation.plain import PlainSums, centroid_of, probability_map
from ringfence.segmentation.strips import Strips, straight_strips

MOST_OBJECTS: Final = 16
"""Boxes of a class; beyond that, running sums over the map are faster."""
MOST_CHANNELS: Final = 256
"""Of the logits: a program holds all of them."""
Groups: TypeAlias = dict[int, tuple[Tensor, dict[str, Any]]]
"""Boxes, and gradients by name of what was measured about them."""
LARGEST: Final = 2**31
"""Numbers in an image: within it, places are counted in 32 bits."""


def can_fuse(logits: Tensor) -> bool:
    """Whether the kernels can be used: a GPU, Triton, no float64, and nobody who wants to see plain operations."""
    return (
        logits.is_cuda
        and logits.ndim > 3
        and logits.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and 0 < logits.numel() < LARGEST * max(len(logits), 1)
        and logits.shape[1] <= MOST_CHANNELS
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and installed("triton")
    )


def fused_sums(
    logits: Tensor, classes: tuple[int, ...], temperature: float, boxes: Tensor | None
) -> FusedSums | None:
    """The measures of these channels by the kernels; None where they cannot be used.

    Channels that are not one after another are left to plain operations.
    """
    one_after_another = classes == tuple(range(classes[0], classes[0] + len(classes)))
    if not one_after_another or not can_fuse(logits) or (boxes is not None and boxes.shape[2] > MOST_OBJECTS):
        return None
    return FusedSums(logits, classes, temperature, boxes)


@final
class FusedSums:
    """Σ s along each axis of a map, within boxes and outside of them, and what follows, without the map itself.

    In the first pass, everything about the whole map is found, and about ``boxes`` if they are known by then. Boxes
    that are asked for later take a pass of their own. Whatever the order, the gradient takes one: what came later
    hands its part to what came first.

    Args:
        logits: ``[batch, channels, *space]``.
        classes: the channels that are measured, one after another.
        temperature: of the softmax.
        boxes: int64 ``[batch, K, objects, axes, 2]`` that will be asked for, or None.
    """

    def __init__(self, logits: Tensor, classes: tuple[int, ...], temperature: float, boxes: Tensor | None) -> None:
        self._logits, self._axes = logits, logits.ndim - 2
        self._passes = Passes(logits.detach(), classes, temperature)
        self._boxes = None if boxes is None else boxes.contiguous()
        self._first: tuple[Tensor, ...] = ()
        self._known: list[tuple[Tensor, tuple[Tensor, ...]]] = []

    @property
    def sums(self) -> tuple[Tensor, ...]:
        """Of the whole map, for each axis: ``[batch, K, length]``."""
        return self._pass()[1 : 1 + self._axes]

    @property
    def size(self) -> Tensor:
        """``[batch, K]``."""
        return self._pass()[1 + self._axes]

    @property
    def centroid(self) -> Tensor:
        """``[batch, K, axes]``."""
        return self._pass()[2 + self._axes]

    def inside(self, boxes: Tensor) -> Tensor:
        """``[batch, K, objects]``."""
        return self._within(boxes)[-2]

    def outside(self, boxes: Tensor) -> Tensor:
        """``[batch, K]``."""
        return self._within(boxes)[-1]

    def strips(self, boxes: Tensor, width: int, margin: Tensor | None) -> Strips:
        """``[batch, K, objects, axes, strips]``."""
        boxes = boxes.contiguous()
        along = self._within(boxes)[: self._axes]
        made = _Strips.apply(self._first[0], along, boxes, width, margin, self._passes)  # type: ignore[no-untyped-call]
        return Strips(*made)

    def _pass(self) -> tuple[Tensor, ...]:
        """The first pass: a token that later ones depend on, and all measures."""
        if not self._first:
            self._first = _First.apply(self._logits, self._boxes, self._passes)  # type: ignore[no-untyped-call]
            if self._boxes is not None:
                self._known.append((self._boxes, self._first[3 + self._axes :]))
        return self._first

    def _within(self, boxes: Tensor) -> tuple[Tensor, ...]:
        """Sums within each box for each axis, their total, and what is outside."""
        boxes = boxes.contiguous()
        if not self._first and self._boxes is None:
            self._boxes = boxes
        first = self._pass()
        for known, found in self._known:
            if known.data_ptr() == boxes.data_ptr() and known.shape == boxes.shape:
                return found
        later: tuple[Tensor, ...] = _Later.apply(first[0], boxes, self._passes)  # type: ignore[no-untyped-call]
        self._known.append((boxes, later))
        return later


@final
class Passes:
    """What the passes over one map do, and what they hand to the first on the way back.

    Autograd's nodes hold it. It must hold none of them, nor anything that does: a circle through them is never let
    go of, with the whole graph of the network on it.

    Args:
        logits: without a graph.
        classes: the channels that are measured, one after another.
        temperature: of the softmax.

    Attributes:
        late: boxes, and gradients of what is about them, of passes that came later: filled on the way back.
    """

    def __init__(self, logits: Tensor, classes: tuple[int, ...], temperature: float) -> None:
        from ringfence.segmentation.fused import launch  # Triton is there, then

        self._launch = launch
        self._logits, self._classes, self._temperature = logits, classes, temperature
        self._axes = logits.ndim - 2
        self.late: list[tuple[Tensor, dict[str, Any]]] = []

    def measure(self, boxes: Tensor | None) -> Sums:
        """All measures, without a graph."""
        return self._launch.forward(self._logits, boxes, self._cut(boxes), 1.0 / self._temperature)

    def strips_along(
        self, along: Sequence[Tensor], boxes: Tensor, width: int, margin: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Strips, without a graph."""
        return self._launch.strips(along, boxes, width, margin, self._cut(boxes).space)

    def gradient(self, logits: Tensor, measured: Any, groups: Groups, own: dict[str, Any]) -> Tensor:
        """d/dlogits of everything.

        Args:
            logits: those of the first pass.
            measured: what it found.
            groups: boxes and gradients of what is about them.
            own: gradients of what is about the whole map.
        """
        if torch.is_grad_enabled():
            return self._plainly(logits, groups, own)
        total: Tensor | None = None
        about: list[tuple[Tensor | None, dict[str, Any]]] = [*groups.values()]
        for boxes, some in about or [(None, {})]:
            slopes = Slopes(**{"sums": [None] * self._axes} | own | some, measured=measured)
            part = self._launch.backward(logits, boxes, self._cut(boxes), 1.0 / self._temperature, slopes)
            total, own = part if total is None else total + part, {}  # the whole map's once
        assert total is not None  # noqa: S101
        return total

    def _cut(self, boxes: Tensor | None) -> Cut:
        objects = 1 if boxes is None else boxes.shape[2]
        return Cut.of(
            self._logits.shape, self._classes[0], len(self._classes), objects, self._logits.element_size()
        )

    def _plainly(self, logits: Tensor, groups: Groups, own: dict[str, Any]) -> Tensor:
        """The same by plain operations, with a graph: somebody wants gradients of it."""
        plain = PlainSums(probability_map(logits, self._classes, self._temperature))
        sums = plain.sums
        size = sums[0].sum(dim=-1)
        found: list[tuple[Tensor, Tensor | None]] = [
            *zip(sums, own.get("sums", [None] * self._axes), strict=True),
            (size, own.get("size")),
            (centroid_of(sums, size), own.get("centroid")),
        ]
        for boxes, some in groups.values():
            along = plain.along(boxes)
            found += zip(along, some.get("along", [None] * self._axes), strict=True)
            found += [(plain.inside(boxes), some.get("inside")), (plain.outside(boxes), some.get("outside"))]
            if some.get("strips") is not None:
                found.append((straight_strips(along, boxes, some["width"], some["margin"]).sums, some["strips"]))
        pairs = [(one, gradient) for one, gradient in found if gradient is not None]
        if not pairs:
            return torch.zeros_like(logits)
        outputs, given = zip(*pairs, strict=True)
        (result,) = torch.autograd.grad(outputs, logits, given, create_graph=True)
        return result


class _First(torch.autograd.Function):
    """The first pass; its gradient comes last, because everything later depends on its token."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, boxes: Tensor | None, passes: Passes) -> tuple[Tensor, ...]:
        measured = passes.measure(boxes)
        ctx.save_for_backward(logits)
        ctx.passes, ctx.boxes, ctx.axes, ctx.measured = passes, boxes, len(measured.sums), measured
        ctx.set_materialize_grads(False)
        found = (*measured.sums, measured.size, measured.centroid, *measured.about_boxes)
        # as tensors of their own: what is returned belongs to this node, which has the measured ones
        return logits.new_empty(0), *(one.detach() for one in found)

    @staticmethod
    def backward(ctx: Any, token: Tensor | None, *gradients: Tensor | None) -> tuple[Tensor, None, None]:
        (logits,) = ctx.saved_tensors
        axes, passes = ctx.axes, ctx.passes
        own = {"sums": gradients[:axes], "size": gradients[axes], "centroid": gradients[axes + 1]}
        groups: Groups = {}
        late, passes.late = passes.late, []
        if ctx.boxes is not None:
            late.insert(0, (ctx.boxes, _about_boxes(gradients[axes + 2 :], axes)))
        for boxes, some in late:
            _, there = groups.setdefault(boxes.data_ptr(), (boxes, {}))
            for name, gradient in some.items():
                if name != "strips" or "strips" not in there:
                    there.setdefault(name, gradient)
                elif some["strips"] is not None:  # strips of the same boxes twice: another width, say
                    groups[id(gradient)] = (boxes, some)
        return passes.gradient(logits, ctx.measured, groups, own), None, None


class _Later(torch.autograd.Function):
    """A pass about boxes that nobody knew of at first."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, boxes: Tensor, passes: Passes) -> tuple[Tensor, ...]:
        measured = passes.measure(boxes)
        ctx.passes, ctx.boxes, ctx.axes = passes, boxes, len(measured.sums)
        ctx.set_materialize_grads(False)
        return measured.about_boxes

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None, None]:
        ctx.passes.late.append((ctx.boxes, _about_boxes(gradients, ctx.axes)))
        return next(one for one in gradients if one is not None).new_empty(0), None, None


class _Strips(torch.autograd.Function):
    """Strips of sums that are there already; their gradient is the first pass's to compute."""

    @staticmethod
    def forward(
        ctx: Any,
        token: Tensor,
        along: Sequence[Tensor],
        boxes: Tensor,
        width: int,
        margin: Tensor | None,
        passes: Passes,
    ) -> tuple[Tensor, Tensor, Tensor]:
        sums, widths, there = passes.strips_along(along, boxes, width, margin)
        ctx.passes, ctx.boxes, ctx.width, ctx.margin = passes, boxes, width, margin
        ctx.mark_non_differentiable(widths, there)
        ctx.set_materialize_grads(False)
        return sums, widths, there

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 6
        some = {"strips": gradient, "width": ctx.width, "margin": ctx.margin}
        ctx.passes.late.append((ctx.boxes, some))
        return gradient.new_empty(0), *[None] * 5


def _about_boxes(gradients: Sequence[Tensor | None], axes: int) -> dict[str, Any]:
    return {"along": gradients[:axes], "inside": gradients[axes], "outside": gradients[axes + 1]}

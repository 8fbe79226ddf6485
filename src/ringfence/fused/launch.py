"""The launches, and when they can be used."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from ringfence.extras import installed

BLOCK: Final = 1024
FEW: Final = 128
"""Up to so many residuals, one warp does: most of a short kernel would be lanes that have none, waiting."""
MANY: Final = 2**16
"""From so many residuals on, plain operations fill a GPU, and one program for all of them would not."""
NONE, NUMBER, TENSOR = 0, 1, 2


def can_be_one(tensor: Tensor) -> bool:
    """Whether one launch will do: float32 on a GPU, not too many, and nobody traces what is done."""
    return (
        tensor.is_cuda
        and tensor.dtype is torch.float32
        and 0 < tensor.numel() < MANY
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and installed("triton")
    )


def residual(
    value: Tensor,
    low: float | Tensor | None,
    high: float | Tensor | None,
    unit: float | Tensor,
    mask: Tensor | None,
) -> Tensor:
    """(low - value, value - high) / unit on a new last dimension, or one of both in value's shape.

    Bounds, unit and mask broadcast to the value; only the value has a gradient. See ``can_be_one``.
    """
    sides = [_like(one, value) for one in (low, high, None if isinstance(unit, float) and unit == 1.0 else unit)]
    known = None if mask is None else mask.expand(value.shape).contiguous()
    found: Tensor = _Residual.apply(value.contiguous(), *sides, known)  # type: ignore[no-untyped-call]
    return found


def barrier(f: Tensor, t: float | Tensor) -> tuple[Tensor, Tensor]:
    """Σ ψ_t(f) and ψ_t'(f) of contiguous residuals; 0 for those of -inf."""
    return _both("barrier", f, t)


def square(f: Tensor, strength: float | Tensor) -> tuple[Tensor, Tensor]:
    """γ Σ max(f, 0)² and its slope, of contiguous residuals."""
    return _both("square", f, strength)


RULES: Final = {"product": 0, "violation": 1, "augmented": 2}


def multiplied(
    f: Tensor, table: Tensor, index: Tensor | None, rule: str, rho: float | Tensor, ragged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Σ φ_λ(f), φ_λ'(f) and each λ, of contiguous multipliers: the rows ``index``, or the table over and over.

    See ``can_be_one``; where it is ragged, f = -inf costs nothing.
    """
    from ringfence.fused import kernels

    f = f.detach().contiguous()
    total, slope, held = f.new_empty(()), torch.empty_like(f), torch.empty_like(f)
    width = table.numel() if index is None else table[0].numel()
    rows = None if index is None else index.contiguous()
    with torch.cuda.device_of(f):
        kernels.multiplied[(1,)](
            f, table, rows, rho, total, slope, held, f.numel(), width,
            RULE=RULES[rule], INDEXED=rows is not None, RAGGED=ragged, POINTER=isinstance(rho, Tensor), **_lanes(f),
        )  # fmt: skip
    return total, slope, held


def note_rows(f: Tensor, index: Tensor, sums: Tensor, counts: Tensor, *, violation: bool, ragged: bool) -> None:
    """Put Σ v and how many of each data point in place of what was there, v being f or max(f, 0); see above.

    Each row looks at all rows: of few.
    """
    from ringfence.fused import kernels

    f, width = f.detach().contiguous(), f[0].numel()
    with torch.cuda.device_of(f):
        kernels.note_rows[(len(index), -(-width // BLOCK))](
            f, index.contiguous(), sums, counts, len(index), width,
            VIOLATION=violation, RAGGED=ragged, BLOCK=min(max(16, 1 << (width - 1).bit_length()), BLOCK),
        )  # fmt: skip


def note_all(f: Tensor, sums: Tensor, counts: Tensor, *, violation: bool, ragged: bool) -> None:
    """Add Σ v over all of f, and how many, to what was there; of each of two sides if there are two."""
    from ringfence.fused import kernels

    with torch.cuda.device_of(f):
        kernels.note_all[(1,)](
            f.detach().contiguous(), sums, counts, f.numel(),
            SIDES=sums.numel(), VIOLATION=violation, RAGGED=ragged, **_lanes(f),
        )  # fmt: skip


def _both(kernel: str, f: Tensor, number: float | Tensor) -> tuple[Tensor, Tensor]:
    from ringfence.fused import kernels

    f = f.detach().contiguous()
    total, slope = f.new_empty(()), torch.empty_like(f)
    with torch.cuda.device_of(f):
        getattr(kernels, kernel)[(1,)](
            f, number, total, slope, f.numel(), POINTER=isinstance(number, Tensor), **_lanes(f)
        )
    return total, slope


def _lanes(f: Tensor) -> dict[str, int]:
    """How many entries a program takes at once, and by how many warps."""
    return {"BLOCK": FEW, "num_warps": 1} if f.numel() <= FEW else {"BLOCK": BLOCK, "num_warps": 4}


def _like(bound: float | Tensor | None, value: Tensor) -> float | Tensor | None:
    return bound.detach().expand(value.shape).contiguous() if isinstance(bound, Tensor) else bound


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        value: Tensor,
        low: float | Tensor | None,
        high: float | Tensor | None,
        unit: float | Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        from ringfence.fused import kernels

        kinds = {"LOW": _kind(low), "HIGH": _kind(high), "UNIT": _kind(unit), "MASK": mask is not None}
        sides = 2 if low is not None and high is not None else 1
        ctx.kinds, ctx.sides, ctx.shape, ctx.unit, ctx.mask = kinds, sides, value.shape, unit, mask
        out = value.new_empty(*value.shape, 2) if sides == 2 else torch.empty_like(value)
        lanes = _lanes(value)
        with torch.cuda.device_of(value):
            kernels.residual[(-(-value.numel() // lanes["BLOCK"]),)](
                value, low, high, unit, mask, out, value.numel(), SIDES=sides, **lanes, **kinds
            )
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None, None]:
        from ringfence.fused import kernels

        if torch.is_grad_enabled():  # create_graph=True: by operations that have a gradient themselves
            below, above = slope.unbind(dim=-1) if ctx.sides == 2 else (slope, slope)
            both = above - below if ctx.sides == 2 else above if ctx.kinds["HIGH"] else -below
            found = both if ctx.unit is None else both / ctx.unit
            return (found if ctx.mask is None else torch.where(ctx.mask, found, 0.0)), None, None, None, None
        out = slope.new_empty(ctx.shape)
        lanes = _lanes(out)
        with torch.cuda.device_of(out):
            kernels.residual_back[(-(-out.numel() // lanes["BLOCK"]),)](
                slope.contiguous(), ctx.unit, ctx.mask, out, out.numel(), SIDES=ctx.sides, **lanes, **ctx.kinds
            )
        return out, None, None, None, None


def _kind(bound: float | Tensor | None) -> int:
    return NONE if bound is None else TENSOR if isinstance(bound, Tensor) else NUMBER

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""A 1 × 1 convolution to a few channels, of maps as [rows, channels]: little to multiply, and much to read.

As matrix products do: weights and bias are rounded to what the map is in, and sums are in float32.
"""

import triton
import triton.language as tl


@triton.jit
def project(
    x, weight, bias, out, rows, channels,
    OUTPUTS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """out[r, o] = Σ over channels of x[r, c] weight[o, c], and bias[o]."""
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    column = tl.arange(0, BC)
    valid = row < rows
    place = row[:, None] * channels + column[None, :]
    value = tl.load(x + place, mask=valid[:, None] & (column < channels)[None, :], other=0.0).to(tl.float32)
    for output in tl.static_range(OUTPUTS):
        factor = tl.load(weight + output * channels + column, mask=column < channels, other=0.0)
        total = tl.sum(value * factor.to(x.dtype.element_ty).to(tl.float32)[None, :], axis=1)
        if BIASED:
            total += tl.load(bias + output).to(x.dtype.element_ty).to(tl.float32)
        tl.store(out + row * OUTPUTS + output, total.to(out.dtype.element_ty), mask=valid)


@triton.jit
def project_back(
    x, weight, dy, dx, parts, rows, channels, stride, each,
    OUTPUTS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx[r, c] = Σ over o of dy[r, o] weight[o, c]; and over ``each`` rows, Σ dy[r, o] x[r, c] and Σ dy[r, o]."""
    part = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BC)
    there = column < channels
    number = tl.arange(0, 16)  # outputs: as many as a matrix product takes at least
    along = tl.zeros((16, BC), tl.float32)
    plain = tl.zeros((16, BR), tl.float32)
    last = tl.minimum((part + 1) * each, rows)
    for start in range(0, each, BR):
        row = part * each + start + tl.arange(0, BR)
        valid = row < last
        place = row[:, None] * channels + column[None, :]
        within = valid[:, None] & there[None, :]
        spread = tl.zeros((BR, BC), tl.float32)
        for output in tl.static_range(OUTPUTS):
            g = tl.load(dy + row * stride + output, mask=valid, other=0.0).to(tl.float32)
            factor = tl.load(weight + output * channels + column, mask=there, other=0.0)
            spread += g[:, None] * factor.to(x.dtype.element_ty).to(tl.float32)[None, :]
        tl.store(dx + place, spread.to(dx.dtype.element_ty), mask=within)
        asked = valid[None, :] & (number < OUTPUTS)[:, None]
        g = tl.load(dy + row[None, :] * stride + number[:, None], mask=asked, other=0.0).to(x.dtype.element_ty)
        value = tl.load(x + place, mask=within, other=0.0)
        along += tl.dot(g, value, input_precision="ieee")
        plain += g.to(tl.float32)
    target = parts + part * OUTPUTS * (channels + 1)
    found = (number < OUTPUTS)[:, None] & there[None, :]
    tl.store(target + number[:, None] * channels + column[None, :], along, mask=found)
    tl.store(target + OUTPUTS * channels + number, tl.sum(plain, axis=1), mask=number < OUTPUTS)

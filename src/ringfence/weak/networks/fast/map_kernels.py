# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""Doubling a map and joining it to another, and halving one by maxima. Maps are [batch, row, column, channel].

Pixels are counted in 32 bits, in which divisions are cheap; places in memory are in 64.
"""

import triton
import triton.language as tl


@triton.jit
def join(
    skip, small, out, pixels, height, width, low_height, low_width, ratio_y, ratio_x,
    SKIP: tl.constexpr, SMALL: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out = [skip, small doubled]: bilinear, the corners of both grids on each other."""
    pixel = tl.program_id(0) * BR + tl.arange(0, BR)
    block = tl.program_id(1)
    there = (pixel < pixels)[:, None]
    column = tl.arange(0, BC)[None, :]
    place = pixel.to(tl.int64)[:, None]
    target = out + place * (SKIP + SMALL) + block * BC + column
    if block * BC < SKIP:
        tl.store(target, tl.load(skip + place * SKIP + block * BC + column, mask=there), mask=there)
    else:
        x = pixel % width
        y = (pixel // width) % height
        image = pixel // (width * height)
        at_y, at_x = y.to(tl.float32) * ratio_y, x.to(tl.float32) * ratio_x
        y0, x0 = at_y.to(tl.int32), at_x.to(tl.int32)
        part_y, part_x = (at_y - y0)[:, None], (at_x - x0)[:, None]
        y1, x1 = tl.minimum(y0 + 1, low_height - 1), tl.minimum(x0 + 1, low_width - 1)
        source = small + block * BC - SKIP + column
        row0, row1 = (image * low_height + y0) * low_width, (image * low_height + y1) * low_width
        row0, row1 = row0.to(tl.int64), row1.to(tl.int64)
        a = tl.load(source + ((row0 + x0) * SMALL)[:, None], mask=there, other=0.0).to(tl.float32)
        b = tl.load(source + ((row0 + x1) * SMALL)[:, None], mask=there, other=0.0).to(tl.float32)
        c = tl.load(source + ((row1 + x0) * SMALL)[:, None], mask=there, other=0.0).to(tl.float32)
        d = tl.load(source + ((row1 + x1) * SMALL)[:, None], mask=there, other=0.0).to(tl.float32)
        upper, lower = a + part_x * (b - a), c + part_x * (d - c)
        tl.store(target, (upper + part_y * (lower - upper)).to(out.dtype.element_ty), mask=there)


@triton.jit
def join_back(
    gradient, out, pixels, height, width, low_height, low_width, ratio_y, ratio_x, inverse_y, inverse_x,
    SKIP: tl.constexpr, SMALL: tl.constexpr, REACH: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient of the small map: each of its pixels gathers from the doubled ones that it had a part in."""
    pixel = tl.program_id(0) * BR + tl.arange(0, BR)
    there = pixel < pixels
    x = pixel % low_width
    y = (pixel // low_width) % low_height
    image = pixel // (low_width * low_height)
    source = gradient + SKIP + tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    first_y = tl.ceil((y - 1).to(tl.float32) * inverse_y).to(tl.int32)
    first_x = tl.ceil((x - 1).to(tl.float32) * inverse_x).to(tl.int32)
    total = tl.zeros((BR, BC), tl.float32)
    for j in range(REACH):
        from_y = first_y + j
        part_y = tl.maximum(1.0 - tl.abs(from_y.to(tl.float32) * ratio_y - y.to(tl.float32)), 0.0)
        row = ((image * height + from_y) * width).to(tl.int64)
        for i in tl.static_range(REACH):
            from_x = first_x + i
            part = part_y * tl.maximum(1.0 - tl.abs(from_x.to(tl.float32) * ratio_x - x.to(tl.float32)), 0.0)
            inside = there & (from_y >= 0) & (from_y < height) & (from_x >= 0) & (from_x < width) & (part > 0.0)
            place = source + ((row + from_x) * (SKIP + SMALL))[:, None]
            total += part[:, None] * tl.load(place, mask=inside[:, None], other=0.0).to(tl.float32)
    target = out + pixel.to(tl.int64)[:, None] * SMALL + tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=there[:, None])


@triton.jit
def pool(x, out, pixels, height, width, channels, BR: tl.constexpr, BC: tl.constexpr):
    """The maximum of two by two pixels; height and width are those of the result."""
    pixel = tl.program_id(0) * BR + tl.arange(0, BR)
    column = (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    there = (pixel < pixels)[:, None] & (column < channels)
    place = x + _upper_left(pixel, width)[:, None] * channels + column
    a = tl.load(place, mask=there, other=0.0)
    b = tl.load(place + channels, mask=there, other=0.0)
    c = tl.load(place + 2 * width * channels, mask=there, other=0.0)
    d = tl.load(place + (2 * width + 1) * channels, mask=there, other=0.0)
    most = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    tl.store(out + pixel.to(tl.int64)[:, None] * channels + column, most, mask=there)


@triton.jit
def pool_back(
    x, dy, kept, dx, pixels, height, width, channels, stride, kept_stride,
    KEPT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient goes to the first of the four that is as large as their maximum; and kept is added to all."""
    pixel = tl.program_id(0) * BR + tl.arange(0, BR)
    column = (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    there = (pixel < pixels)[:, None] & (column < channels)
    upper = _upper_left(pixel, width)[:, None]
    place = upper * channels + column
    a = tl.load(x + place, mask=there, other=0.0)
    b = tl.load(x + place + channels, mask=there, other=0.0)
    c = tl.load(x + place + 2 * width * channels, mask=there, other=0.0)
    d = tl.load(x + place + (2 * width + 1) * channels, mask=there, other=0.0)
    most = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    g = tl.load(dy + pixel.to(tl.int64)[:, None] * stride + column, mask=there, other=0.0).to(tl.float32)
    first = a == most
    second = (b == most) & (~first)
    third = (c == most) & (~first) & (~second)
    at_a, at_b, at_c = tl.where(first, g, 0.0), tl.where(second, g, 0.0), tl.where(third, g, 0.0)
    at_d = tl.where(first | second | third, 0.0, g)
    if KEPT:
        source = kept + upper * kept_stride + column
        at_a += tl.load(source, mask=there, other=0.0).to(tl.float32)
        at_b += tl.load(source + kept_stride, mask=there, other=0.0).to(tl.float32)
        at_c += tl.load(source + 2 * width * kept_stride, mask=there, other=0.0).to(tl.float32)
        at_d += tl.load(source + (2 * width + 1) * kept_stride, mask=there, other=0.0).to(tl.float32)
    target = dx + place
    tl.store(target, at_a.to(dx.dtype.element_ty), mask=there)
    tl.store(target + channels, at_b.to(dx.dtype.element_ty), mask=there)
    tl.store(target + 2 * width * channels, at_c.to(dx.dtype.element_ty), mask=there)
    tl.store(target + (2 * width + 1) * channels, at_d.to(dx.dtype.element_ty), mask=there)


@triton.jit
def _upper_left(pixel, width):
    """The first of the four pixels that one of the halved map, ``width`` wide, is made of."""
    return (pixel // width).to(tl.int64) * (4 * width) + (pixel % width) * 2

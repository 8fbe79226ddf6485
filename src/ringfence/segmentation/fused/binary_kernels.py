# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""The two kernels for one class against one other, with one box at most: s is a sigmoid, and arithmetic counts.

A program is one warp: no sum needs another. It walks over STEPS tiles [R, W] of one slice, and asks for a tile
while the one before it is added up. Sums are separable: along X, what is beside the box apart from what is in it,
so that what is outside is a sum of positive terms.

EVEN: tiles end where the map does, and nothing needs a mask.
"""

import triton
import triton.language as tl

from ringfence.segmentation.fused.instruction_kernels import power, reciprocal
from ringfence.segmentation.fused.small_kernels import box_slope, whole_slope


@triton.jit
def read(
    logits, ys, tile_x, high, X, stride_c, stride_y, stride_x,
    SIGN: tl.constexpr, PAIRED: tl.constexpr, W: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """A tile as it lies in memory: two channels [R, W]; or, PAIRED, [R, 2 W] where a pixel's two lie side by side.

    SIGN is 0 for a single channel, else 1 or -1 as the class is channel 1 or channel 0. Rows are read
    up to high.
    """
    if PAIRED:
        place = 2 * tile_x * W + tl.arange(0, 2 * W)
        last = 2 * X
        pointers = logits + ys[:, None] * stride_y + place[None, :]
    else:
        place = tile_x * W + tl.arange(0, W)
        last = X
        pointers = logits + ys[:, None] * stride_y + place[None, :] * stride_x
    there = (ys < high)[:, None]
    if not EVEN:
        there = there & (place < last)[None, :]
    first = tl.load(pointers, mask=there, other=0.0)
    if PAIRED or SIGN == 0:
        return first, first
    return first, tl.load(pointers + stride_c, mask=there, other=0.0)


@triton.jit
def difference(first, second, SIGN: tl.constexpr, PAIRED: tl.constexpr, R: tl.constexpr, W: tl.constexpr):
    """The second channel's logit less the first's, in float32; a single channel's own."""
    if PAIRED:
        first, second = tl.split(tl.reshape(first, (R, W, 2)))
    if SIGN == 0:
        return first.to(tl.float32)
    return second.to(tl.float32) - first.to(tl.float32)


@triton.jit
def ends(box, axis):
    """Where a box starts and stops along an axis."""
    return tl.load(box + axis * 2).to(tl.int32), tl.load(box + axis * 2 + 1).to(tl.int32)


@triton.jit
def span(start, stop, place):
    """1 where start <= place < stop, else 0."""
    return ((place >= start) & (place < stop)).to(tl.float32)


@triton.jit
def ends_in_slice(box, z, AXES: tl.constexpr):
    """Where a box starts and stops along Y in the slice z; with nothing in between where that is beside the box."""
    start, stop = ends(box, AXES - 2)
    if AXES == 3:
        start_z, stop_z = ends(box, 0)
        stop = tl.where((z >= start_z) & (z < stop_z), stop, start)
    return start, stop


@triton.jit
def forward(
    logits, box, out_z, out_y, out_x, box_z, box_y, box_x, outside,
    Z, Y, X, stride_b, stride_c, stride_z, stride_y, stride_x, rate, tiles_x, parts, parts_y, STEPS,
    SIGN: tl.constexpr, PAIRED: tl.constexpr, R: tl.constexpr, W: tl.constexpr, AXES: tl.constexpr,
    BOXES: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """As the general ``forward``; rate is -log2(e) / temperature, times SIGN.

    out_z: [batch, parts_y tiles_x, Z]. out_y: [batch, Z tiles_x, Y]. out_x: [batch, parts, X].
    outside: [batch, parts tiles_x].
    """
    program = tl.program_id(0)
    tile_x, part, b = program % tiles_x, (program // tiles_x) % parts, (program // tiles_x // parts).to(tl.int64)
    z, part_y = part // parts_y, part % parts_y
    logits += b * stride_b
    if AXES == 3:
        logits += z.to(tl.int64) * stride_z
    xs = tile_x * W + tl.arange(0, W)
    low = part_y * STEPS * R
    high = tl.minimum(low + STEPS * R, Y)
    rows = low + tl.arange(0, R)
    rest_x = tl.zeros((W,), tl.float32)
    some_x = tl.zeros((W,), tl.float32)
    whole = tl.zeros((R,), tl.float32)
    held = tl.zeros((R,), tl.float32)
    beyond = tl.zeros((R,), tl.float32)
    row = ((b * Z + z) * tiles_x + tile_x) * Y
    first, second = read(
        logits, rows, tile_x, high, X, stride_c, stride_y, stride_x, SIGN, PAIRED, W, EVEN
    )  # fmt: skip
    if BOXES:
        box += b * AXES * 2
        start_x, stop_x = ends(box, AXES - 1)
        start_y, stop_y = ends_in_slice(box, z, AXES)
        in_x = span(start_x, stop_x, xs)
        beside_x = 1.0 - in_x
    for step in range(STEPS):
        ys = rows + step * R
        value = difference(first, second, SIGN, PAIRED, R, W)
        first, second = read(
            logits, ys + R, tile_x, high, X, stride_c, stride_y, stride_x, SIGN, PAIRED, W, EVEN
        )  # fmt: skip
        s = reciprocal(1.0 + power(rate * value))
        there = None
        if not EVEN:
            there = ys < Y
            s = tl.where(there[:, None] & (xs < X)[None, :], s, 0.0)
        if BOXES:
            in_y = span(start_y, stop_y, ys)
            within = tl.sum(s * in_x[None, :], axis=1)
            beside = tl.sum(s * beside_x[None, :], axis=1)
            inside = within * in_y
            tl.store(out_y + row + ys, within + beside, mask=there)
            tl.store(box_y + row + ys, inside, mask=there)
            beyond += beside + within * (1.0 - in_y)
            some_x += tl.sum(s * in_y[:, None], axis=0)
            rest_x += tl.sum(s * (1.0 - in_y)[:, None], axis=0)
            if AXES == 3:
                whole += within + beside
                held += inside
        else:
            along = tl.sum(s, axis=1)
            tl.store(out_y + row + ys, along, mask=there)
            rest_x += tl.sum(s, axis=0)
            if AXES == 3:
                whole += along
    column = (b * parts + part) * X + xs
    tile_z = ((b * parts_y + part_y) * tiles_x + tile_x) * Z + z
    if AXES == 3:
        tl.store(out_z + tile_z, tl.sum(whole, axis=0))
    if BOXES:
        tl.store(box_x + column, some_x * in_x, mask=xs < X)
        tl.store(out_x + column, rest_x + some_x, mask=xs < X)
        tl.store(outside + (b * parts + part) * tiles_x + tile_x, tl.sum(beyond, axis=0))
        if AXES == 3:
            tl.store(box_z + tile_z, tl.sum(held, axis=0))
    else:
        tl.store(out_x + column, rest_x, mask=xs < X)


@triton.jit
def backward(
    logits, gradient, box, margin, margin_b, margin_a,
    sums_z, sums_y, sums_x, g_size, g_centroid, along_z, along_y, along_x, g_inside, g_strips, size, centroid,
    slope_outside, outside_b, Z, Y, X, stride_b, stride_c, stride_z, stride_y, stride_x,
    grad_b, grad_c, grad_z, grad_y, grad_x, rate, scale, small, most, tiles_x, parts, parts_y, STEPS,
    SIGN: tl.constexpr, PAIRED: tl.constexpr, R: tl.constexpr, W: tl.constexpr, AXES: tl.constexpr,
    BOXES: tl.constexpr, EVEN: tl.constexpr, SUMS: tl.constexpr, SIZE: tl.constexpr, CENTROID: tl.constexpr,
    ALONG: tl.constexpr, INSIDE: tl.constexpr, STRIPS: tl.constexpr, MARGIN: tl.constexpr, OUTSIDE: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """As the general ``backward``: d/dlogit = ±s (1 - s) g / temperature; scale is 1 / temperature, times SIGN."""
    program = tl.program_id(0)
    tile_x, part, b = program % tiles_x, (program // tiles_x) % parts, program // tiles_x // parts
    z, part_y = part // parts_y, part % parts_y
    logits += b.to(tl.int64) * stride_b
    gradient += b.to(tl.int64) * grad_b
    if AXES == 3:
        logits += z.to(tl.int64) * stride_z
        gradient += z.to(tl.int64) * grad_z
    xs = tile_x * W + tl.arange(0, W)
    low = part_y * STEPS * R
    high = tl.minimum(low + STEPS * R, Y)
    rows = low + tl.arange(0, R)
    first, second = read(
        logits, rows, tile_x, high, X, stride_c, stride_y, stride_x, SIGN, PAIRED, W, EVEN
    )  # fmt: skip
    level = 0.0
    plane = 0.0
    if AXES == 3:
        level = whole_slope(
            sums_z, g_size, g_centroid, size, centroid, b, z, Z, small, 0, AXES, SUMS, SIZE, CENTROID
        )  # fmt: skip
    whole_x = scale * whole_slope(
        sums_x, g_size, g_centroid, size, centroid, b, xs, X, small, AXES - 1, AXES, SUMS, SIZE, CENTROID
    )  # fmt: skip
    if BOXES:
        corner = box + b * AXES * 2
        start_x, stop_x = ends(corner, AXES - 1)
        start_y, stop_y = ends_in_slice(corner, z, AXES)
        in_x = span(start_x, stop_x, xs)
        beyond = 0.0
        if OUTSIDE:
            beyond = tl.load(slope_outside + b * outside_b)
        level += beyond
        if AXES == 3:
            plane = box_slope(
                along_z, g_inside, g_strips, box, margin, margin_b, margin_a, b, b, z, Z, most, 0, AXES, ALONG,
                INSIDE, STRIPS, MARGIN, WIDTH,
            )  # fmt: skip
        boxed_x = box_slope(
            along_x, g_inside, g_strips, box, margin, margin_b, margin_a, b, b, xs, X, most, AXES - 1, AXES,
            ALONG, INSIDE, STRIPS, MARGIN, WIDTH,
        )  # fmt: skip
        inner_x = scale * (boxed_x + (plane - beyond)) * in_x
    for step in range(STEPS):
        ys = rows + step * R
        value = difference(first, second, SIGN, PAIRED, R, W)
        first, second = read(
            logits, ys + R, tile_x, high, X, stride_c, stride_y, stride_x, SIGN, PAIRED, W, EVEN
        )  # fmt: skip
        s = reciprocal(1.0 + power(rate * value))
        whole_y = whole_slope(
            sums_y, g_size, g_centroid, size, centroid, b, ys, Y, small, AXES - 2, AXES, SUMS, SIZE, CENTROID
        )  # fmt: skip
        whole_y = scale * (whole_y + level)
        if BOXES:
            in_y = span(start_y, stop_y, ys)
            boxed_y = box_slope(
                along_y, g_inside, g_strips, box, margin, margin_b, margin_a, b, b, ys, Y, most, AXES - 2, AXES,
                ALONG, INSIDE, STRIPS, MARGIN, WIDTH,
            )  # fmt: skip
            inner_y = scale * boxed_y * in_y
            g = (whole_y[:, None] + inner_y[:, None] * in_x[None, :]) + (
                whole_x[None, :] + in_y[:, None] * inner_x[None, :]
            )
        else:
            g = whole_y[:, None] + whole_x[None, :]
        result = (s - s * s) * g
        target = gradient + ys[:, None] * grad_y
        there = None
        if not EVEN:
            there = (ys < Y)[:, None] & (xs < X)[None, :]
        if SIGN == 0:
            single = result.to(gradient.dtype.element_ty)
            tl.store(target + xs[None, :] * grad_x, single, mask=there)
        elif PAIRED:
            both = tl.join((-result).to(gradient.dtype.element_ty), result.to(gradient.dtype.element_ty))
            place = 2 * tile_x * W + tl.arange(0, 2 * W)
            if not EVEN:
                there = (ys < Y)[:, None] & (place < 2 * X)[None, :]
            tl.store(target + place[None, :], tl.reshape(both, (R, 2 * W)), mask=there)
        else:
            target += xs[None, :] * grad_x
            tl.store(target, (-result).to(gradient.dtype.element_ty), mask=there)
            tl.store(target + grad_c, result.to(gradient.dtype.element_ty), mask=there)

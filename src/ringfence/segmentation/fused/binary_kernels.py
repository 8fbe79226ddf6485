# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""The same two kernels for one class against one other in 2-D: s is a sigmoid, and arithmetic counts.

Sums are separable: along X, what is beside the box apart from what is in it, so that what is outside is a sum of
positive terms.
"""

import triton
import triton.language as tl


@triton.jit
def chance(
    logits, ys, tile_x, Y, X, stride_c, stride_y, stride_x, scale,
    SIGN: tl.constexpr, PAIRED: tl.constexpr, R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """s of a tile [R, W]; SIGN is 0 for a single channel, else 1 or -1 as the class is channel 1 or channel 0.

    PAIRED: the two channels of a pixel lie beside each other, and pixels one after another: read as they lie.
    """
    if PAIRED:
        place = 2 * tile_x * W + tl.arange(0, 2 * W)
        valid = (ys < Y)[:, None] & (place < 2 * X)[None, :]
        both = tl.load(logits + ys[:, None] * stride_y + place[None, :], mask=valid, other=0.0)
        first, second = tl.split(tl.reshape(both, (R, W, 2)))
        value = (second.to(tl.float32) - first.to(tl.float32)) * SIGN
    else:
        xs = tile_x * W + tl.arange(0, W)
        valid = (ys < Y)[:, None] & (xs < X)[None, :]
        place = logits + ys[:, None] * stride_y + xs[None, :] * stride_x
        value = tl.load(place, mask=valid, other=0.0).to(tl.float32)
        if SIGN != 0:
            value = (tl.load(place + stride_c, mask=valid, other=0.0).to(tl.float32) - value) * SIGN
    return 1.0 / (1.0 + tl.exp(-scale * value))


@triton.jit
def span(box, axis, place):
    """1 where start <= place < stop along an axis of a box, else 0."""
    start, stop = tl.load(box + axis * 2), tl.load(box + axis * 2 + 1)
    return ((place >= start) & (place < stop)).to(tl.float32)


@triton.jit
def forward(
    logits, box, out_y, out_x, box_y, box_x, outside,
    Y, X, stride_b, stride_c, stride_y, stride_x, scale, tiles_x, parts, STEPS,
    SIGN: tl.constexpr, PAIRED: tl.constexpr, R: tl.constexpr, W: tl.constexpr, BOXES: tl.constexpr,
):  # fmt: skip
    """As the general ``forward``, with one object at most."""
    b, part, tile_x = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    logits += b.to(tl.int64) * stride_b
    xs = tile_x * W + tl.arange(0, W)
    rows = tl.arange(0, R)
    all_x = tl.zeros((W,), tl.float32)
    some_x = tl.zeros((W,), tl.float32)
    beyond = tl.zeros((R,), tl.float32)
    if BOXES:
        box += b * 4
        in_x = span(box, 1, xs)
    for step in range(STEPS):
        ys = (part * STEPS + step) * R + rows
        valid = (ys < Y)[:, None] & (xs < X)[None, :]
        s = chance(logits, ys, tile_x, Y, X, stride_c, stride_y, stride_x, scale, SIGN, PAIRED, R, W)
        s = tl.where(valid, s, 0.0)
        if BOXES:
            in_y = span(box, 0, ys)
            within = tl.sum(s * in_x[None, :], axis=1)
            beside = tl.sum(s * (1.0 - in_x)[None, :], axis=1)
            tl.store(out_y + (b * tiles_x + tile_x) * Y + ys, within + beside, mask=ys < Y)
            tl.store(box_y + (b * tiles_x + tile_x) * Y + ys, within * in_y, mask=ys < Y)
            beyond += beside + within * (1.0 - in_y)
            some_x += tl.sum(s * in_y[:, None], axis=0)
            all_x += tl.sum(s * (1.0 - in_y)[:, None], axis=0)
        else:
            tl.store(out_y + (b * tiles_x + tile_x) * Y + ys, tl.sum(s, axis=1), mask=ys < Y)
            all_x += tl.sum(s, axis=0)
    column = (b * parts + part) * X + xs
    if BOXES:
        tl.store(box_x + column, some_x * in_x, mask=xs < X)
        tl.store(out_x + column, all_x + some_x, mask=xs < X)
        tl.store(outside + (b * parts + part) * tiles_x + tile_x, tl.sum(beyond, axis=0))
    else:
        tl.store(out_x + column, all_x, mask=xs < X)


@triton.jit
def backward(
    logits, gradient, box, whole_y, whole_x, boxed_y, boxed_x, slope_outside, outside_b,
    Y, X, stride_b, stride_c, stride_y, stride_x, grad_b, grad_c, grad_y, grad_x, scale, STEPS,
    SIGN: tl.constexpr, PAIRED: tl.constexpr, R: tl.constexpr, W: tl.constexpr, BOXES: tl.constexpr,
):  # fmt: skip
    """As the general ``backward``: d/dlogit = ±s (1 - s) g / temperature."""
    b, part, tile_x = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    logits += b.to(tl.int64) * stride_b
    gradient += b.to(tl.int64) * grad_b
    xs = tile_x * W + tl.arange(0, W)
    rows = tl.arange(0, R)
    along_x = tl.load(whole_x + b * X + xs, mask=xs < X, other=0.0)
    if BOXES:
        box += b * 4
        in_x = span(box, 1, xs)
        beyond = tl.load(slope_outside + b * outside_b)
        inner_x = (tl.load(boxed_x + b * X + xs, mask=xs < X, other=0.0) - beyond) * in_x
    for step in range(STEPS):
        ys = (part * STEPS + step) * R + rows
        valid = (ys < Y)[:, None] & (xs < X)[None, :]
        s = chance(logits, ys, tile_x, Y, X, stride_c, stride_y, stride_x, scale, SIGN, PAIRED, R, W)
        along_y = tl.load(whole_y + b * Y + ys, mask=ys < Y, other=0.0)
        if BOXES:
            in_y = span(box, 0, ys)
            inner_y = tl.load(boxed_y + b * Y + ys, mask=ys < Y, other=0.0) * in_y
            inner = inner_y[:, None] * in_x[None, :] + in_y[:, None] * inner_x[None, :]
            g = inner + (along_y + beyond)[:, None] + along_x[None, :]
        else:
            g = along_y[:, None] + along_x[None, :]
        result = (s - s * s) * (g * scale)
        target = gradient + ys[:, None] * grad_y
        if SIGN == 0:
            tl.store(target + xs[None, :] * grad_x, result.to(gradient.dtype.element_ty), mask=valid)
        else:
            result = (result * SIGN).to(gradient.dtype.element_ty)
            if PAIRED:
                place = 2 * tile_x * W + tl.arange(0, 2 * W)
                there = (ys < Y)[:, None] & (place < 2 * X)[None, :]
                tl.store(target + place[None, :], tl.reshape(tl.join(-result, result), (R, 2 * W)), mask=there)
            else:
                tl.store(target + xs[None, :] * grad_x + grad_c, result, mask=valid)
                tl.store(target + xs[None, :] * grad_x, -result, mask=valid)

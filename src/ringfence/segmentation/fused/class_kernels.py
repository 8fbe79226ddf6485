# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""The two kernels for several classes with one box each at most: a box is separable, and needs no map of its own.

A program walks over STEPS tiles [channels, R, W] of one slice, and asks for a tile while the one before it is added
up; channels that are not measured, or
that are there to make a power of two, are added up as well, and not stored. Sums are as in ``binary_kernels``.
"""

import triton
import triton.language as tl

from ringfence.segmentation.fused.instruction_kernels import power, reciprocal


@triton.jit
def read(
    logits, channel, ys, xs, high, X, stride_c, stride_y, stride_x,
    C: tl.constexpr, CHANNELS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """A tile [channels, R, W] as it lies in memory, rows up to high; elsewhere 0."""
    place = channel[:, None, None] * stride_c + ys[None, :, None] * stride_y + xs[None, None, :] * stride_x
    there = (ys < high)[None, :, None]
    if not EVEN:
        there = there & (xs < X)[None, None, :]
    if C != CHANNELS:
        there = there & (channel < C)[:, None, None]
    return tl.load(logits + place, mask=there, other=0.0)


@triton.jit
def softmax(values, channel, rate, C: tl.constexpr, CHANNELS: tl.constexpr, SIGMOID: tl.constexpr):
    """s of a tile [channels, R, W]; rate is log2(e) / temperature. Where there is no pixel it is anything."""
    values = values.to(tl.float32)
    if SIGMOID:
        return reciprocal(1.0 + power(-rate * values))
    if C != CHANNELS:
        values = tl.where((channel < C)[:, None, None], values, float("-inf"))
    e = power(values * rate - (tl.max(values, axis=0) * rate)[None, :, :])
    return e * reciprocal(tl.sum(e, axis=0))[None, :, :]  # the largest e is 1


@triton.jit
def spans(box, row, axis, AXES: tl.constexpr, place, measured):
    """1 where start <= place < stop along an axis of each channel's box, else 0: [channels, places]."""
    start = tl.load(box + (row * AXES + axis) * 2, mask=measured, other=0).to(tl.int32)
    stop = tl.load(box + (row * AXES + axis) * 2 + 1, mask=measured, other=0).to(tl.int32)
    return ((place[None, :] >= start[:, None]) & (place[None, :] < stop[:, None])).to(tl.float32)


@triton.jit
def forward(
    logits, box, out_z, out_y, out_x, box_z, box_y, box_x, outside,
    Z, Y, X, stride_b, stride_c, stride_z, stride_y, stride_x, rate, tiles_x, parts, parts_y, STEPS,
    C: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr, R: tl.constexpr,
    W: tl.constexpr, AXES: tl.constexpr, BOXES: tl.constexpr, SIGMOID: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """As the general ``forward``; the parts are those of ``binary_kernels.forward``, for each [batch, K]."""
    program = tl.program_id(0)
    tile_x, part, b = program % tiles_x, (program // tiles_x) % parts, (program // tiles_x // parts).to(tl.int64)
    z, part_y = part // parts_y, part % parts_y
    channel = tl.arange(0, CHANNELS)
    measured = (channel >= FIRST) & (channel < FIRST + K)
    slot = b * K + channel - FIRST
    logits += b * stride_b
    if AXES == 3:
        logits += z.to(tl.int64) * stride_z
    xs = tile_x * W + tl.arange(0, W)
    low = part_y * STEPS * R
    high = tl.minimum(low + STEPS * R, Y)
    rows = low + tl.arange(0, R)
    there_x = measured[:, None] & (xs < X)[None, :]
    all_x = tl.zeros((CHANNELS, W), tl.float32)
    some_x = tl.zeros((CHANNELS, W), tl.float32)
    whole = tl.zeros((CHANNELS, R), tl.float32)
    held = tl.zeros((CHANNELS, R), tl.float32)
    beyond = tl.zeros((CHANNELS, R), tl.float32)
    row = ((slot * Z + z) * tiles_x + tile_x) * Y
    values = read(logits, channel, rows, xs, high, X, stride_c, stride_y, stride_x, C, CHANNELS, EVEN)
    if BOXES:
        in_x = spans(box, slot, AXES - 1, AXES, xs, measured)
        if AXES == 3:
            in_z = spans(box, slot, 0, AXES, z + tl.arange(0, 1), measured)
    for step in range(STEPS):
        ys = rows + step * R
        now = values
        values = read(logits, channel, ys + R, xs, high, X, stride_c, stride_y, stride_x, C, CHANNELS, EVEN)
        s = softmax(now, channel, rate, C, CHANNELS, SIGMOID)
        if not EVEN:
            s = tl.where(((ys < Y)[:, None] & (xs < X)[None, :])[None, :, :], s, 0.0)
        there_y = measured[:, None] & (ys < Y)[None, :]
        target = row[:, None] + ys[None, :]
        if BOXES:
            in_y = spans(box, slot, AXES - 2, AXES, ys, measured)
            if AXES == 3:
                in_y = in_y * in_z
            within = tl.sum(s * in_x[:, None, :], axis=2)
            beside = tl.sum(s * (1.0 - in_x)[:, None, :], axis=2)
            inside = within * in_y
            tl.store(out_y + target, within + beside, mask=there_y)
            tl.store(box_y + target, inside, mask=there_y)
            beyond += beside + within * (1.0 - in_y)
            some_x += tl.sum(s * in_y[:, :, None], axis=1)
            all_x += tl.sum(s * (1.0 - in_y)[:, :, None], axis=1)
            if AXES == 3:
                whole += within + beside
                held += inside
        else:
            along = tl.sum(s, axis=2)
            tl.store(out_y + target, along, mask=there_y)
            all_x += tl.sum(s, axis=1)
            if AXES == 3:
                whole += along
    column = ((slot * parts + part) * X)[:, None] + xs[None, :]
    tile_z = ((slot * parts_y + part_y) * tiles_x + tile_x) * Z + z
    if AXES == 3:
        tl.store(out_z + tile_z, tl.sum(whole, axis=1), mask=measured)
    if BOXES:
        tl.store(box_x + column, some_x * in_x, mask=there_x)
        tl.store(out_x + column, all_x + some_x, mask=there_x)
        tl.store(outside + (slot * parts + part) * tiles_x + tile_x, tl.sum(beyond, axis=1), mask=measured)
        if AXES == 3:
            tl.store(box_z + tile_z, tl.sum(held, axis=1), mask=measured)
    else:
        tl.store(out_x + column, all_x, mask=there_x)


@triton.jit
def at_places(given, slot, length, place, measured):
    """[channels, places] of what is [slots, length]; 0 where there is none."""
    there = measured[:, None] & (place < length)[None, :]
    return tl.load(given + (slot * length)[:, None] + place[None, :], mask=there, other=0.0)


@triton.jit
def backward(
    logits, gradient, box,
    whole_z, whole_y, whole_x, boxed_z, boxed_y, boxed_x, slope_outside, outside_b, outside_k,
    Z, Y, X, stride_b, stride_c, stride_z, stride_y, stride_x, grad_b, grad_c, grad_z, grad_y, grad_x, rate, scale,
    tiles_x, parts, parts_y, STEPS,
    C: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr, R: tl.constexpr,
    W: tl.constexpr, AXES: tl.constexpr, BOXES: tl.constexpr, SIGMOID: tl.constexpr, EVEN: tl.constexpr,
    OUTSIDE: tl.constexpr,
):  # fmt: skip
    """As the general ``backward``."""
    program = tl.program_id(0)
    tile_x, part, b = program % tiles_x, (program // tiles_x) % parts, (program // tiles_x // parts).to(tl.int64)
    z, part_y = part // parts_y, part % parts_y
    channel = tl.arange(0, CHANNELS)
    measured = (channel >= FIRST) & (channel < FIRST + K)
    k = channel - FIRST
    slot = b * K + k
    logits += b * stride_b
    gradient += b * grad_b
    if AXES == 3:
        logits += z.to(tl.int64) * stride_z
        gradient += z.to(tl.int64) * grad_z
    xs = tile_x * W + tl.arange(0, W)
    low = part_y * STEPS * R
    high = tl.minimum(low + STEPS * R, Y)
    rows = low + tl.arange(0, R)
    values = read(logits, channel, rows, xs, high, X, stride_c, stride_y, stride_x, C, CHANNELS, EVEN)
    along_x = scale * at_places(whole_x, slot, X, xs, measured)
    if AXES == 3:
        here = z + tl.arange(0, 1)
        along_x += scale * at_places(whole_z, slot, Z, here, measured)
    if BOXES:
        in_x = spans(box, slot, AXES - 1, AXES, xs, measured)
        inner_x = at_places(boxed_x, slot, X, xs, measured)
        if AXES == 3:
            in_z = spans(box, slot, 0, AXES, here, measured)
            inner_x += at_places(boxed_z, slot, Z, here, measured)
        if OUTSIDE:
            beyond = tl.load(slope_outside + b * outside_b + k * outside_k, mask=measured, other=0.0)
            inner_x -= beyond[:, None]
            along_x += scale * beyond[:, None]
        inner_x = scale * inner_x * in_x
    for step in range(STEPS):
        ys = rows + step * R
        now = values
        values = read(logits, channel, ys + R, xs, high, X, stride_c, stride_y, stride_x, C, CHANNELS, EVEN)
        valid = ((ys < Y)[:, None] & (xs < X)[None, :])[None, :, :]
        target = channel[:, None, None] * grad_c + ys[None, :, None] * grad_y + xs[None, None, :] * grad_x
        s = softmax(now, channel, rate, C, CHANNELS, SIGMOID)
        g = along_x[:, None, :] + (scale * at_places(whole_y, slot, Y, ys, measured))[:, :, None]
        if BOXES:
            in_y = spans(box, slot, AXES - 2, AXES, ys, measured)
            if AXES == 3:
                in_y = in_y * in_z
            inner_y = scale * at_places(boxed_y, slot, Y, ys, measured) * in_y
            g += inner_y[:, :, None] * in_x[:, None, :] + in_y[:, :, None] * inner_x[:, None, :]
        mean = s * g if SIGMOID else tl.sum(s * g, axis=0)[None, :, :]
        result = s * (g - mean)
        there = None
        if not EVEN:
            there = valid
        if C != CHANNELS:
            there = valid & (channel < C)[:, None, None]
        tl.store(gradient + target, result.to(gradient.dtype.element_ty), mask=there)

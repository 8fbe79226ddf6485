# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""The kernels for any number of boxes.

Space is [Z, Y, X], Z = 1 in two dimensions; a tile is [channels, R rows, W columns] of one Z.
A program walks over STEPS tiles, along Z in three dimensions and along Y in two, and keeps its sums along X in
registers meanwhile. Nothing is added by atomics: the same input gives the same bits.

Whatever the logits are in memory (channels first or last, any dtype), they are read where they are and computed in
float32. Boxes are int64 [batch, K, objects, axes, 2], contiguous.
"""

import triton
import triton.language as tl


@triton.jit
def probabilities(logits, place, channel, valid, scale, C: tl.constexpr, SIGMOID: tl.constexpr):
    """s of a tile [channels, R, W]: softmax over the channels, or a sigmoid; 0 where there is no pixel."""
    there = valid & (channel < C)[:, None, None]
    values = tl.load(logits + place, mask=there, other=0.0).to(tl.float32) * scale
    if SIGMOID:
        s = 1.0 / (1.0 + tl.exp(-values))
    else:
        values = tl.where((channel < C)[:, None, None], values, float("-inf"))
        e = tl.exp(values - tl.max(values, axis=0)[None, :, :])
        s = e / tl.sum(e, axis=0)[None, :, :]
    return tl.where(there, s, 0.0)


@triton.jit
def within(box, row, axis, AXES: tl.constexpr, place, measured):
    """Whether start <= place < stop along an axis of each channel's box: [channels, places]."""
    start = tl.load(box + (row * AXES + axis) * 2, mask=measured, other=0)
    stop = tl.load(box + (row * AXES + axis) * 2 + 1, mask=measured, other=0)
    return (place[None, :] >= start[:, None]) & (place[None, :] < stop[:, None])


@triton.jit
def in_box(box, row, AXES: tl.constexpr, z, ys, xs, measured):
    """Whether a tile's pixels are in each channel's box: [channels, R, W]."""
    inside = within(box, row, AXES - 2, AXES, ys, measured)[:, :, None]
    inside = inside & within(box, row, AXES - 1, AXES, xs, measured)[:, None, :]
    if AXES == 3:
        start = tl.load(box + row * AXES * 2, mask=measured, other=0)
        stop = tl.load(box + row * AXES * 2 + 1, mask=measured, other=0)
        inside = inside & ((z >= start) & (z < stop))[:, None, None]
    return inside


@triton.jit
def forward(
    logits, box, out_z, out_y, out_x, box_z, box_y, box_x, outside,
    Z, Y, X, objects, stride_b, stride_c, stride_z, stride_y, stride_x, scale,
    tiles_y, tiles_x, parts, STEPS,
    C: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr, R: tl.constexpr,
    W: tl.constexpr, AXES: tl.constexpr, BOXES: tl.constexpr, SIGMOID: tl.constexpr,
):  # fmt: skip
    """Sums along every axis: of all the map, within each box, and outside of all boxes of a class.

    out_y: [batch, K, tiles_x, Y] in 2-D; [batch, K, parts over z and x, Y] in 3-D. out_x: [batch, K, parts, X].
    out_z: [batch, K, tiles, Z]. Those of boxes have objects after K. outside: [batch, K, programs].
    """
    b, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    tile_x, o = (
        column // objects,
        column % objects,
    )  # a tile's objects run side by side: it is in the cache
    channel = tl.arange(0, CHANNELS)
    measured = (channel >= FIRST) & (channel < FIRST + K)
    slot = b * K + channel - FIRST
    xs = tile_x * W + tl.arange(0, W)
    there_x = measured[:, None] & (xs < X)[None, :]
    sums_x = tl.zeros((CHANNELS, W), tl.float32)
    boxed_x = tl.zeros((CHANNELS, W), tl.float32)
    sums_y = tl.zeros((CHANNELS, R), tl.float32)
    boxed_y = tl.zeros((CHANNELS, R), tl.float32)
    beyond = tl.zeros((CHANNELS,), tl.float32)
    if AXES == 3:
        first_z, tile_y = (part // tiles_y) * STEPS, part % tiles_y
    else:
        first_z, tile_y = 0, part * STEPS
    row = slot * objects + o
    for step in range(STEPS):
        if AXES == 3:
            z, ys = first_z + step, tile_y * R + tl.arange(0, R)
        else:
            z, ys = 0, (tile_y + step) * R + tl.arange(0, R)
        valid = ((ys < Y)[:, None] & (xs < X)[None, :])[None, :, :]
        if AXES == 3:
            valid = valid & (z + 0 * ys < Z)[None, :, None]
        place = channel[:, None, None] * stride_c + ys[None, :, None] * stride_y + xs[None, None, :] * stride_x
        if AXES == 3:
            place = place + z * stride_z
        s = probabilities(logits + b * stride_b, place, channel, valid, scale, C, SIGMOID)
        s = tl.where(measured[:, None, None], s, 0.0)
        rows = tl.sum(s, axis=2)
        there_y = measured[:, None] & (ys < Y)[None, :]
        if o == 0:
            sums_x += tl.sum(s, axis=1)
            if AXES == 3:
                sums_y += rows
                tile = (slot * (tiles_y * tiles_x) + tile_y * tiles_x + tile_x) * Z + z
                tl.store(out_z + tile, tl.sum(rows, axis=1), mask=measured & (z + 0 * channel < Z))
            else:
                tl.store(out_y + ((slot * tiles_x + tile_x) * Y)[:, None] + ys[None, :], rows, mask=there_y)
        if BOXES:
            inside = in_box(box, row, AXES, z, ys, xs, measured)
            boxed = tl.where(inside, s, 0.0)
            rows = tl.sum(boxed, axis=2)
            boxed_x += tl.sum(boxed, axis=1)
            if AXES == 3:
                boxed_y += rows
                tile = (row * (tiles_y * tiles_x) + tile_y * tiles_x + tile_x) * Z + z
                tl.store(box_z + tile, tl.sum(rows, axis=1), mask=measured & (z + 0 * channel < Z))
            else:
                tl.store(box_y + ((row * tiles_x + tile_x) * Y)[:, None] + ys[None, :], rows, mask=there_y)
            if o == 0:
                for other in range(1, objects):
                    inside = inside | in_box(box, row + other, AXES, z, ys, xs, measured)
                beyond += tl.sum(tl.sum(tl.where(inside, 0.0, s), axis=2), axis=1)
    if o == 0:
        tl.store(out_x + ((slot * parts + part) * X)[:, None] + xs[None, :], sums_x, mask=there_x)
        if BOXES:
            tl.store(outside + (slot * parts + part) * tiles_x + tile_x, beyond, mask=measured)
    if BOXES:
        tl.store(box_x + ((row * parts + part) * X)[:, None] + xs[None, :], boxed_x, mask=there_x)
    if AXES == 3:
        ys = tile_y * R + tl.arange(0, R)
        there_y = measured[:, None] & (ys < Y)[None, :]
        chunks = (parts // tiles_y) * tiles_x
        chunk = (part // tiles_y) * tiles_x + tile_x
        if o == 0:
            tl.store(out_y + ((slot * chunks + chunk) * Y)[:, None] + ys[None, :], sums_y, mask=there_y)
        if BOXES:
            tl.store(box_y + ((row * chunks + chunk) * Y)[:, None] + ys[None, :], boxed_y, mask=there_y)


@triton.jit
def backward(
    logits, gradient, box,
    whole_z, whole_y, whole_x, boxed_z, boxed_y, boxed_x, slope_outside, outside_b, outside_k,
    Z, Y, X, objects, stride_b, stride_c, stride_z, stride_y, stride_x,
    grad_b, grad_c, grad_z, grad_y, grad_x, scale, tiles_y, STEPS,
    C: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr, R: tl.constexpr,
    W: tl.constexpr, AXES: tl.constexpr, BOXES: tl.constexpr, SIGMOID: tl.constexpr,
    OUTSIDE: tl.constexpr,
):  # fmt: skip
    """d/dlogits = s (g - Σ_c s g) / temperature, with g the sum of the gradients of all sums that a pixel is in."""
    b, part, tile_x = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    channel = tl.arange(0, CHANNELS)
    measured = (channel >= FIRST) & (channel < FIRST + K)
    k = channel - FIRST
    xs = tile_x * W + tl.arange(0, W)
    there_x = measured[:, None] & (xs < X)[None, :]
    slot = b * K + k
    along_x = tl.load(whole_x + (slot * X)[:, None] + xs[None, :], mask=there_x, other=0.0)
    beyond = tl.zeros((CHANNELS,), tl.float32)
    if OUTSIDE:
        beyond = tl.load(slope_outside + b * outside_b + k * outside_k, mask=measured, other=0.0)
    for step in range(STEPS):
        if AXES == 3:
            z, ys = (part // tiles_y) * STEPS + step, (part % tiles_y) * R + tl.arange(0, R)
        else:
            z, ys = 0, (part * STEPS + step) * R + tl.arange(0, R)
        there_y = measured[:, None] & (ys < Y)[None, :]
        valid = ((ys < Y)[:, None] & (xs < X)[None, :])[None, :, :]
        if AXES == 3:
            valid = valid & (z + 0 * ys < Z)[None, :, None]
        place = channel[:, None, None] * stride_c + ys[None, :, None] * stride_y + xs[None, None, :] * stride_x
        target = channel[:, None, None] * grad_c + ys[None, :, None] * grad_y + xs[None, None, :] * grad_x
        if AXES == 3:
            place, target = place + z * stride_z, target + z * grad_z
        s = probabilities(logits + b * stride_b, place, channel, valid, scale, C, SIGMOID)
        along_y = tl.load(whole_y + (slot * Y)[:, None] + ys[None, :], mask=there_y, other=0.0)
        g = along_x[:, None, :] + along_y[:, :, None]
        there_z = measured & (z + 0 * channel < Z)
        if AXES == 3:
            g += tl.load(whole_z + slot * Z + z, mask=there_z, other=0.0)[:, None, None]
        if BOXES:
            covered = tl.zeros((CHANNELS, R, W), tl.int1)
            for o in range(objects):
                row = slot * objects + o
                inside = in_box(box, row, AXES, z, ys, xs, measured)
                h = tl.load(boxed_x + (row * X)[:, None] + xs[None, :], mask=there_x, other=0.0)[:, None, :]
                h = h + tl.load(boxed_y + (row * Y)[:, None] + ys[None, :], mask=there_y, other=0.0)[:, :, None]
                if AXES == 3:
                    h += tl.load(boxed_z + row * Z + z, mask=there_z, other=0.0)[:, None, None]
                g += tl.where(inside, h, 0.0)
                covered = covered | inside
            g += tl.where(covered, 0.0, beyond[:, None, None])
        g = tl.where(measured[:, None, None], g, 0.0)
        mean = s * g if SIGMOID else tl.sum(s * g, axis=0)[None, :, :]
        result = s * (g - mean) * scale
        there = valid & (channel < C)[:, None, None]
        tl.store(gradient + b * grad_b + target, result.to(gradient.dtype.element_ty), mask=there)

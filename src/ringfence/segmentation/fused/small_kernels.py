# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""What is done with the sums themselves, in few launches: they are short, and a launch costs more."""

import triton
import triton.language as tl


@triton.jit
def add_parts(parts, out, row, count, length, about, BLOCK: tl.constexpr, SEVERAL: tl.constexpr):
    """out[row] = Σ over parts [rows, count, length]; also its sum, and its sum with (place - about).

    SEVERAL parts are read at once: the kernel is as fast as its reads come back.
    """
    total = tl.zeros((), tl.float32)
    moment = tl.zeros((), tl.float32)
    parts += row.to(tl.int64) * count * length
    for first in range(0, length, BLOCK):
        place = first + tl.arange(0, BLOCK)
        there = place < length
        sums = tl.zeros((SEVERAL, BLOCK), tl.float32)
        for start in range(0, count, SEVERAL):
            part = start + tl.arange(0, SEVERAL)
            valid = (part < count)[:, None] & there[None, :]
            sums += tl.load(parts + part[:, None] * length + place[None, :], mask=valid, other=0.0)
        along = tl.sum(sums, axis=0)
        tl.store(out + row * length + place, along, mask=there)
        total += tl.sum(along, axis=0)
        moment += tl.sum(along * (place - about), axis=0)
    return total, moment


@triton.jit
def finish(
    part_z, part_y, part_x, boxed_z, boxed_y, boxed_x, part_outside,
    sums_z, sums_y, sums_x, along_z, along_y, along_x, size, centroid, inside, outside,
    count_z, count_y, count_x, count_outside, Z, Y, X, objects, small,
    AXES: tl.constexpr, BOXES: tl.constexpr, BLOCK: tl.constexpr, SEVERAL: tl.constexpr,
):  # fmt: skip
    """Sums along each axis of all parts; size and centroid; mass within each box, and outside of all.

    A program for each axis of the whole map of each [batch, K], and of each object.
    """
    slot, which, axis = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if which == 0:
        if axis == AXES - 1:
            total, moment = add_parts(part_x, sums_x, slot, count_x, X, (X - 1) / 2.0, BLOCK, SEVERAL)
            tl.store(size + slot, total)
            tl.store(centroid + slot * AXES + axis, (X - 1) / 2.0 + moment / (total + small))
        if axis == AXES - 2:
            total, moment = add_parts(part_y, sums_y, slot, count_y, Y, (Y - 1) / 2.0, BLOCK, SEVERAL)
            tl.store(centroid + slot * AXES + axis, (Y - 1) / 2.0 + moment / (total + small))
            if BOXES:
                beyond = tl.zeros((BLOCK,), tl.float32)
                for first in range(0, count_outside, BLOCK):
                    part = first + tl.arange(0, BLOCK)
                    there = part < count_outside
                    beyond += tl.load(part_outside + slot * count_outside + part, mask=there, other=0.0)
                tl.store(outside + slot, tl.sum(beyond, axis=0))
        if AXES == 3:  # noqa: SIM102 - decided when the kernel is compiled: in 2-D there is no part_z
            if axis == 0:
                total, moment = add_parts(part_z, sums_z, slot, count_z, Z, (Z - 1) / 2.0, BLOCK, SEVERAL)
                tl.store(centroid + slot * AXES + axis, (Z - 1) / 2.0 + moment / (total + small))
    elif BOXES:
        row = slot * objects + which - 1
        if axis == AXES - 1:
            total, _ = add_parts(boxed_x, along_x, row, count_x, X, 0.0, BLOCK, SEVERAL)
            tl.store(inside + row, total)
        if axis == AXES - 2:
            add_parts(boxed_y, along_y, row, count_y, Y, 0.0, BLOCK, SEVERAL)
        if AXES == 3:  # noqa: SIM102 - as above
            if axis == 0:
                add_parts(boxed_z, along_z, row, count_z, Z, 0.0, BLOCK, SEVERAL)


@triton.jit
def strips(
    along_z, along_y, along_x, box, margin, margin_b, margin_a, sums, widths, there, per_image,
    Z, Y, X, width, most, AXES: tl.constexpr, MARGIN: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """S_k = Σ along[start + kw : start + (k+1)w], and how many places these are: [rows, axes, most].

    BLOCK strips are read at once, WIDE places of each: no less than the width, if that is not large.
    """
    row, axis = tl.program_id(0), tl.program_id(1)
    start = tl.load(box + (row * AXES + axis) * 2)
    stop = tl.load(box + (row * AXES + axis) * 2 + 1)
    if MARGIN:
        off = tl.load(margin + (row // per_image) * margin_b + axis * margin_a)
        start, stop = start + off, stop - off
    along = along_x + row * X
    if axis == AXES - 2:
        along = along_y + row * Y
    if AXES == 3:  # noqa: SIM102 - decided when the kernel is compiled: in 2-D there is no along_z
        if axis == 0:
            along = along_z + row * Z
    for first in range(0, most, BLOCK):
        k = first + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        places = tl.zeros((BLOCK,), tl.int32)
        for begin in range(0, width, WIDE):
            step = begin + tl.arange(0, WIDE)
            place = start + (k * width)[:, None] + step[None, :]
            valid = (place < stop) & (k < most)[:, None] & (step < width)[None, :] & (place >= 0)
            total += tl.sum(tl.load(along + place, mask=valid, other=0.0), axis=1)
            places += tl.sum(valid.to(tl.int32), axis=1)
        target = (row * AXES + axis) * most + k
        tl.store(sums + target, total, mask=k < most)
        tl.store(widths + target, places.to(tl.float32), mask=k < most)
        tl.store(there + target, places > 0, mask=k < most)


@triton.jit
def whole_slope(
    given, g_size, g_centroid, size, centroid, slot, place, length, small, AXIS: tl.constexpr,
    AXES: tl.constexpr, SUMS: tl.constexpr, SIZE: tl.constexpr, CENTROID: tl.constexpr,
):  # fmt: skip
    """The gradient at places of an axis, from those of sums, size (along the last axis alone) and centroid."""
    slope = place * 0.0
    if SUMS:
        slope += tl.load(given + slot * length + place, mask=place < length, other=0.0)
    if SIZE and AXIS == AXES - 1:
        slope += tl.load(g_size + slot)
    if CENTROID:
        pull = tl.load(g_centroid + slot * AXES + AXIS) / (tl.load(size + slot) + small)
        slope += pull * (place - tl.load(centroid + slot * AXES + AXIS))
    return slope


@triton.jit
def box_slope(
    given, g_inside, g_strips, box, margin, margin_b, margin_a, row, image, place, length, most,
    AXIS: tl.constexpr, AXES: tl.constexpr, ALONG: tl.constexpr, INSIDE: tl.constexpr, STRIPS: tl.constexpr,
    MARGIN: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient at places of an axis of a box, from those of sums, mass (along the last axis) and strips."""
    slope = place * 0.0
    if ALONG:
        slope += tl.load(given + row * length + place, mask=place < length, other=0.0)
    if INSIDE and AXIS == AXES - 1:
        slope += tl.load(g_inside + row)
    if STRIPS:
        start = tl.load(box + (row * AXES + AXIS) * 2).to(tl.int32)
        stop = tl.load(box + (row * AXES + AXIS) * 2 + 1).to(tl.int32)
        if MARGIN:
            off = tl.load(margin + image * margin_b + AXIS * margin_a).to(tl.int32)
            start, stop = start + off, stop - off
        number = (place - start) // WIDTH
        of_strip = (place >= start) & (place < stop) & (place < length) & (number < most)
        slope += tl.load(g_strips + (row * AXES + AXIS) * most + number, mask=of_strip, other=0.0)
    return slope


@triton.jit
def combine(
    sums_z, sums_y, sums_x, g_size, g_centroid, along_z, along_y, along_x, g_inside, g_strips,
    size, centroid, box, margin, margin_b, margin_a, whole_z, whole_y, whole_x, boxed_z, boxed_y, boxed_x,
    Z, Y, X, objects, classes, most, small,
    AXES: tl.constexpr, SUMS: tl.constexpr, SIZE: tl.constexpr, CENTROID: tl.constexpr, ALONG: tl.constexpr,
    INSIDE: tl.constexpr, STRIPS: tl.constexpr, MARGIN: tl.constexpr, WIDTH: tl.constexpr, BOXES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """From the gradients of all measures to one for each place of each axis: of the map, and of each box.

    A program for BLOCK places of the whole map of each [batch, K], and of each object.
    """
    slot, which = tl.program_id(0), tl.program_id(1)
    place = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    row, image = slot * objects + which - 1, slot // classes
    for axis in tl.static_range(3 - AXES, 3):
        if axis == 2:
            given, along, whole, boxed, length = sums_x, along_x, whole_x, boxed_x, X
        elif axis == 1:
            given, along, whole, boxed, length = sums_y, along_y, whole_y, boxed_y, Y
        else:
            given, along, whole, boxed, length = sums_z, along_z, whole_z, boxed_z, Z
        if which == 0:
            slope = whole_slope(
                given, g_size, g_centroid, size, centroid, slot, place, length, small, axis - 3 + AXES, AXES, SUMS,
                SIZE, CENTROID,
            )  # fmt: skip
            tl.store(whole + slot * length + place, slope, mask=place < length)
        elif BOXES:
            slope = box_slope(
                along, g_inside, g_strips, box, margin, margin_b, margin_a, row, image, place, length, most,
                axis - 3 + AXES, AXES, ALONG, INSIDE, STRIPS, MARGIN, WIDTH,
            )  # fmt: skip
            tl.store(boxed + row * length + place, slope, mask=place < length)

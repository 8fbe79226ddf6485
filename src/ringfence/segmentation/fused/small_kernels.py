# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""What is done with the sums themselves, in few launches: they are short, and a launch costs more."""

import triton
import triton.language as tl

SEVERAL = tl.constexpr(8)
"""Parts that are read at once."""


@triton.jit
def add_parts(parts, out, row, count, length, about, BLOCK: tl.constexpr):
    """out[row] = Σ over parts [rows, count, length]; also its sum, and its sum with (place - about)."""
    total = tl.zeros((), tl.float32)
    moment = tl.zeros((), tl.float32)
    for first in range(0, length, BLOCK):
        place = first + tl.arange(0, BLOCK)
        there = place < length
        sums = tl.zeros((SEVERAL, BLOCK), tl.float32)
        for start in range(0, count, SEVERAL):
            part = start + tl.arange(0, SEVERAL)
            valid = (part < count)[:, None] & there[None, :]
            sums += tl.load(parts + (row * count + part)[:, None] * length + place[None, :], mask=valid, other=0.0)
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
    AXES: tl.constexpr, BOXES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums along each axis of all parts; size and centroid; mass within each box, and outside of all.

    A program for each axis of the whole map of each [batch, K], and of each object.
    """
    slot, which, axis = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if which == 0:
        if axis == AXES - 1:
            total, moment = add_parts(part_x, sums_x, slot, count_x, X, (X - 1) / 2.0, BLOCK)
            tl.store(size + slot, total)
            tl.store(centroid + slot * AXES + axis, (X - 1) / 2.0 + moment / (total + small))
        if axis == AXES - 2:
            total, moment = add_parts(part_y, sums_y, slot, count_y, Y, (Y - 1) / 2.0, BLOCK)
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
                total, moment = add_parts(part_z, sums_z, slot, count_z, Z, (Z - 1) / 2.0, BLOCK)
                tl.store(centroid + slot * AXES + axis, (Z - 1) / 2.0 + moment / (total + small))
    elif BOXES:
        row = slot * objects + which - 1
        if axis == AXES - 1:
            total, _ = add_parts(boxed_x, along_x, row, count_x, X, 0.0, BLOCK)
            tl.store(inside + row, total)
        if axis == AXES - 2:
            add_parts(boxed_y, along_y, row, count_y, Y, 0.0, BLOCK)
        if AXES == 3:  # noqa: SIM102 - as above
            if axis == 0:
                add_parts(boxed_z, along_z, row, count_z, Z, 0.0, BLOCK)


@triton.jit
def strips(
    along_z, along_y, along_x, box, margin, margin_b, margin_a, sums, widths, there, per_image,
    Z, Y, X, width, most, AXES: tl.constexpr, MARGIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """S_k = Σ along[start + kw : start + (k+1)w], and how many places these are: [rows, axes, most]."""
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
        for step in range(width):
            place = start + k * width + step
            valid = (place < stop) & (k < most) & (place >= 0)
            total += tl.load(along + place, mask=valid, other=0.0)
            places += valid.to(tl.int32)
        target = (row * AXES + axis) * most + k
        tl.store(sums + target, total, mask=k < most)
        tl.store(widths + target, places.to(tl.float32), mask=k < most)
        tl.store(there + target, places > 0, mask=k < most)


@triton.jit
def whole_slope(
    given, g_size, g_centroid, size, centroid, out, slot, length, small, AXIS: tl.constexpr,
    AXES: tl.constexpr, SUMS: tl.constexpr, SIZE: tl.constexpr, CENTROID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient at each place of an axis, from those of sums, size (along the last axis alone) and centroid."""
    for first in range(0, length, BLOCK):
        place = first + tl.arange(0, BLOCK)
        there = place < length
        slope = tl.zeros((BLOCK,), tl.float32)
        if SUMS:
            slope += tl.load(given + slot * length + place, mask=there, other=0.0)
        if SIZE and AXIS == AXES - 1:
            slope += tl.load(g_size + slot)
        if CENTROID:
            pull = tl.load(g_centroid + slot * AXES + AXIS) / (tl.load(size + slot) + small)
            slope += pull * (place - tl.load(centroid + slot * AXES + AXIS))
        tl.store(out + slot * length + place, slope, mask=there)


@triton.jit
def box_slope(
    given, g_inside, g_strips, box, margin, margin_b, margin_a, out, row, image, length, width, most,
    AXIS: tl.constexpr, AXES: tl.constexpr, ALONG: tl.constexpr, INSIDE: tl.constexpr, STRIPS: tl.constexpr,
    MARGIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient at each place of an axis of a box, from those of sums, mass (along the last axis) and strips."""
    start = tl.load(box + (row * AXES + AXIS) * 2)
    stop = tl.load(box + (row * AXES + AXIS) * 2 + 1)
    if MARGIN:
        off = tl.load(margin + image * margin_b + AXIS * margin_a)
        start, stop = start + off, stop - off
    for first in range(0, length, BLOCK):
        place = first + tl.arange(0, BLOCK)
        there = place < length
        slope = tl.zeros((BLOCK,), tl.float32)
        if ALONG:
            slope += tl.load(given + row * length + place, mask=there, other=0.0)
        if INSIDE and AXIS == AXES - 1:
            slope += tl.load(g_inside + row)
        if STRIPS:
            number = (place - start) // width
            of_strip = there & (place >= start) & (place < stop) & (number < most)
            slope += tl.load(g_strips + (row * AXES + AXIS) * most + number, mask=of_strip, other=0.0)
        tl.store(out + row * length + place, slope, mask=there)


@triton.jit
def combine(
    sums_z, sums_y, sums_x, g_size, g_centroid, along_z, along_y, along_x, g_inside, g_strips,
    size, centroid, box, margin, margin_b, margin_a, whole_z, whole_y, whole_x, boxed_z, boxed_y, boxed_x,
    Z, Y, X, objects, classes, width, most, small,
    AXES: tl.constexpr, SUMS: tl.constexpr, SIZE: tl.constexpr, CENTROID: tl.constexpr, ALONG: tl.constexpr,
    INSIDE: tl.constexpr, STRIPS: tl.constexpr, MARGIN: tl.constexpr, BOXES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From the gradients of all measures to one for each place of each axis: of the map, and of each box."""
    slot, which = tl.program_id(0), tl.program_id(1)
    if which == 0:
        whole_slope(
            sums_x, g_size, g_centroid, size, centroid, whole_x, slot, X, small, AXES - 1, AXES, SUMS, SIZE,
            CENTROID, BLOCK,
        )  # fmt: skip
        whole_slope(
            sums_y, g_size, g_centroid, size, centroid, whole_y, slot, Y, small, AXES - 2, AXES, SUMS, SIZE,
            CENTROID, BLOCK,
        )  # fmt: skip
        if AXES == 3:
            whole_slope(
                sums_z, g_size, g_centroid, size, centroid, whole_z, slot, Z, small, 0, AXES, SUMS, SIZE,
                CENTROID, BLOCK,
            )  # fmt: skip
    elif BOXES:
        row, image = slot * objects + which - 1, slot // classes
        box_slope(
            along_x, g_inside, g_strips, box, margin, margin_b, margin_a, boxed_x, row, image, X, width, most,
            AXES - 1, AXES, ALONG, INSIDE, STRIPS, MARGIN, BLOCK,
        )  # fmt: skip
        box_slope(
            along_y, g_inside, g_strips, box, margin, margin_b, margin_a, boxed_y, row, image, Y, width, most,
            AXES - 2, AXES, ALONG, INSIDE, STRIPS, MARGIN, BLOCK,
        )  # fmt: skip
        if AXES == 3:
            box_slope(
                along_z, g_inside, g_strips, box, margin, margin_b, margin_a, boxed_z, row, image, Z, width,
                most, 0, AXES, ALONG, INSIDE, STRIPS, MARGIN, BLOCK,
            )  # fmt: skip

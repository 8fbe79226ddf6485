# mypy: ignore-errors
# ruff: noqa: N803, SIM108 - Triton's kernels: constants in capitals, decided when they are compiled
"""Residuals from values and bounds, and Σ φ(f) with φ'(f), its multipliers looked up as well: a launch each."""

import triton
import triton.language as tl


@triton.jit
def unit_of(unit, known, place, there, UNIT: tl.constexpr, MASK: tl.constexpr, BLOCK: tl.constexpr):
    """What residuals are divided by: 1 where nothing is known. UNIT: 0 for none, 1 for a number, 2 for a tensor."""
    size = tl.full((BLOCK,), 1.0, tl.float32)
    if UNIT == 1:
        size = size * unit
    if UNIT == 2:
        size = tl.load(unit + place, mask=there, other=1.0)
        if MASK:
            size = tl.where(known, size, 1.0)
    return size


@triton.jit
def residual(
    value, low, high, unit, mask, out, count,
    LOW: tl.constexpr, HIGH: tl.constexpr, UNIT: tl.constexpr, MASK: tl.constexpr, SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """(low - value, value - high) / unit, or one of both; -inf where the mask is False. LOW and HIGH as UNIT."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    v = tl.load(value + place, mask=there, other=0.0)
    known = there
    if MASK:
        known = tl.load(mask + place, mask=there, other=0) != 0
    size = unit_of(unit, known, place, there, UNIT, MASK, BLOCK)
    if LOW != 0:
        if LOW == 2:
            below = tl.load(low + place, mask=there, other=0.0) - v
        else:
            below = low - v
        below = tl.div_rn(below, size)
        if MASK:
            below = tl.where(known, below, float("-inf"))
        tl.store(out + place * SIDES, below, mask=there)
    if HIGH != 0:
        if HIGH == 2:
            above = v - tl.load(high + place, mask=there, other=0.0)
        else:
            above = v - high
        above = tl.div_rn(above, size)
        if MASK:
            above = tl.where(known, above, float("-inf"))
        tl.store(out + place * SIDES + (SIDES - 1), above, mask=there)


@triton.jit
def residual_back(
    slope, unit, mask, out, count,
    LOW: tl.constexpr, HIGH: tl.constexpr, UNIT: tl.constexpr, MASK: tl.constexpr, SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """d/dvalue = (slope of the upper side - slope of the lower one) / unit; 0 where the mask is False."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    known = there
    if MASK:
        known = tl.load(mask + place, mask=there, other=0) != 0
    size = unit_of(unit, known, place, there, UNIT, MASK, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    if HIGH != 0:
        total += tl.div_rn(tl.load(slope + place * SIDES + (SIDES - 1), mask=there, other=0.0), size)
    if LOW != 0:
        total -= tl.div_rn(tl.load(slope + place * SIDES, mask=there, other=0.0), size)
    tl.store(out + place, tl.where(known, total, 0.0), mask=there)


@triton.jit
def barrier(f, t, total, slope, count, POINTER: tl.constexpr, BLOCK: tl.constexpr):
    """Σ ψ_t(f) and ψ_t'(f), by one program; both 0 where f = -inf, and nothing is constrained."""
    sharp = tl.load(t) if POINTER else t
    sharp = tl.full((BLOCK,), 1.0, tl.float32) * sharp
    inverse = tl.div_rn(tl.full((BLOCK,), 1.0, tl.float32), sharp)
    junction = -inverse * inverse
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        place = start + tl.arange(0, BLOCK)
        there = place < count
        z = tl.load(f + place, mask=there, other=float("-inf"))
        free = z == float("-inf")
        linear = z > junction
        inside = tl.where(linear | free, junction, z)  # a NaN stays one
        value = tl.log(-inside) * -inverse + sharp * tl.where(linear, z - junction, 0.0)
        sums += tl.where(free, 0.0, value)
        pull = tl.where(linear, sharp, tl.div_rn(inverse, -inside))
        tl.store(slope + place, tl.where(free, 0.0, pull), mask=there)
    tl.store(total, tl.sum(sums, axis=0))


@triton.jit
def square(f, strength, total, slope, count, POINTER: tl.constexpr, BLOCK: tl.constexpr):
    """γ Σ max(f, 0)² and 2 γ max(f, 0), by one program."""
    gain = tl.load(strength) if POINTER else strength
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        place = start + tl.arange(0, BLOCK)
        there = place < count
        z = tl.load(f + place, mask=there, other=0.0)
        over = tl.where(z <= 0.0, 0.0, z)  # a NaN stays one
        sums += over * over
        tl.store(slope + place, 2.0 * gain * over, mask=there)
    tl.store(total, gain * tl.sum(sums, axis=0))


@triton.jit
def multiplied(
    f, table, index, rho, total, slope, held, count, width,
    RULE: tl.constexpr, INDEXED: tl.constexpr, RAGGED: tl.constexpr, POINTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ φ_λ(f), φ_λ'(f) and λ itself, by one program. RULE: 0 for λf, 1 for λ max(f, 0), 2 for the augmented one.

    λ of entry p is that of row index[p // width] of the table, or over and over the table itself. RAGGED: f = -inf
    costs nothing.
    """
    gain = tl.load(rho) if POINTER else rho
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        place = start + tl.arange(0, BLOCK)
        there = place < count
        z = tl.load(f + place, mask=there, other=0.0)
        at = place % width
        if INDEXED:
            at = at + tl.load(index + place // width, mask=there, other=0) * width
        one = tl.load(table + at, mask=there, other=0.0)
        known = there
        if RAGGED:
            known = there & (z != float("-inf"))
            z = tl.where(known, z, 0.0)
        pull = one
        value = one * z
        if RULE == 1:
            over = tl.where(z <= 0.0, 0.0, z)  # a NaN stays one
            value = one * over
            pull = tl.where(z > 0.0, one, 0.0)
        if RULE == 2:
            pull = one + gain * z
            pull = tl.where(pull <= 0.0, 0.0, pull)
            moved = pull - one
            value = pull * z - moved * moved / (2.0 * gain)
        sums += tl.where(known, value, 0.0)
        tl.store(slope + place, tl.where(known, pull, 0.0), mask=there)
        tl.store(held + place, one, mask=there)
    tl.store(total, tl.sum(sums, axis=0))


@triton.jit
def seen(f, place, there, VIOLATION: tl.constexpr, RAGGED: tl.constexpr):
    """f, or max(f, 0), of these places, and where it is constrained; 0 elsewhere."""
    z = tl.load(f + place, mask=there, other=0.0)
    known = there
    if RAGGED:
        known = there & (z != float("-inf"))
    if VIOLATION:
        z = tl.where(z <= 0.0, 0.0, z)  # a NaN stays one
    return tl.where(known, z, 0.0), known


@triton.jit
def note_rows(
    f, index, sums, counts, rows, width,
    VIOLATION: tl.constexpr, RAGGED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ v and how many, of all rows of the data point that row r is: by its program, in place of what was there."""
    mine = tl.load(index + tl.program_id(0))
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    number = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        there = (column < width) & (tl.load(index + row) == mine)
        v, known = seen(f, row * width + column, there, VIOLATION, RAGGED)
        total += v
        number += known.to(tl.float32)
    tl.store(sums + mine * width + column, total, mask=column < width)
    tl.store(counts + mine * width + column, number, mask=column < width)


@triton.jit
def note_all(
    f, sums, counts, count,
    SIDES: tl.constexpr, VIOLATION: tl.constexpr, RAGGED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add Σ v, and how many, in float64; of each of the two sides, which take turns."""
    for side in tl.static_range(SIDES):
        total = tl.zeros((BLOCK,), tl.float64)
        number = tl.zeros((BLOCK,), tl.float64)
        for start in range(0, count, BLOCK):
            place = start + tl.arange(0, BLOCK)
            v, known = seen(f, place, (place < count) & (place % SIDES == side), VIOLATION, RAGGED)
            total += v.to(tl.float64)
            number += known.to(tl.float64)
        tl.store(sums + side, tl.load(sums + side) + tl.sum(total, axis=0))
        tl.store(counts + side, tl.load(counts + side) + tl.sum(number, axis=0))

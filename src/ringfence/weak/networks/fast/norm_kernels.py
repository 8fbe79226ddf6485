# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""relu(batch norm) of maps whose channels are last, seen as [rows, channels]: two kernels forward, two back.

Numbers are computed in float32 whatever the maps are in. Nothing is added by atomics, which only count programs:
same input, same bits.
"""

import triton
import triton.language as tl


@triton.jit
def moments(
    x, part_mean, part_squares, tickets, rows, channels, parts, each, out_mean, out_scale, running_mean,
    running_var, batches, bias, eps, momentum, BR: tl.constexpr, BC: tl.constexpr, UNROLL: tl.constexpr,
    STAGES: tl.constexpr, BP: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Mean and 1/√(variance + eps) of each channel, and the running ones moved towards them; bias is what x lacks.

    Each program takes ``each`` rows: their mean and Σ(x - mean)², about the first, so that nothing cancels. The
    last to finish puts them together, always in the same order, and moves the running statistics.
    """
    part, block = tl.program_id(0), tl.program_id(1)
    column = block * BC + tl.arange(0, BC)
    there = column < channels
    first = part.to(tl.int64) * each
    about = tl.load(x + first * channels + column, mask=there, other=0.0).to(tl.float32)
    sums = tl.zeros((BR, BC), tl.float32)
    seconds = tl.zeros((BR, BC), tl.float32)
    last = tl.minimum(first + each, rows)
    for start in tl.range(0, each, BR * UNROLL, num_stages=STAGES):
        for step in tl.static_range(UNROLL):  # loads that wait for nothing: enough bytes on their way
            row = first + start + step * BR + tl.arange(0, BR)
            valid = (row < last)[:, None] & there[None, :]
            value = tl.load(x + row[:, None] * channels + column[None, :], mask=valid, other=0.0).to(tl.float32)
            apart = tl.where(valid, value - about[None, :], 0.0)
            sums += apart
            seconds += apart * apart
    count = (last - first).to(tl.float32)
    total = tl.sum(sums, axis=0)
    tl.store(part_mean + part * channels + column, about + total / count, mask=there)
    tl.store(part_squares + part * channels + column, tl.sum(seconds, axis=0) - total * total / count, mask=there)
    if _is_last(tickets + block, parts):
        number = tl.arange(0, BP)
        place = number[:, None] * channels + column[None, :]
        valid = (number < parts)[:, None] & there[None, :]
        counts = (tl.minimum((number + 1) * each, rows) - number * each).to(tl.float32)[:, None]
        means = tl.load(part_mean + place, mask=valid, other=0.0, cache_modifier=".cg")
        squares = tl.load(part_squares + place, mask=valid, other=0.0, cache_modifier=".cg")
        centre = tl.sum(means * counts, axis=0) / rows
        apart = tl.where(valid, means - centre[None, :], 0.0)
        variance = tl.sum(squares + apart * apart * counts, axis=0) / rows
        tl.store(out_mean + column, centre, mask=there)
        tl.store(out_scale + column, 1.0 / tl.sqrt(variance + eps), mask=there)
        seen = centre
        if BIASED:
            seen += tl.load(bias + column, mask=there, other=0.0)
        before = tl.load(running_mean + column, mask=there, other=0.0)
        tl.store(running_mean + column, before + momentum * (seen - before), mask=there)
        before = tl.load(running_var + column, mask=there, other=0.0)
        unbiased = variance * (rows / (rows - 1.0))
        tl.store(running_var + column, before + momentum * (unbiased - before), mask=there)
        if block == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def _is_last(ticket, parts):
    """Whether all other programs have stored what they found; the counter is then 0 again."""
    tl.debug_barrier()  # the ticket is drawn by one thread, and speaks for what all of them stored
    last = tl.atomic_add(ticket, 1, sem="acq_rel") == parts - 1
    if last:
        tl.store(ticket, 0)
    return last


@triton.jit
def normalise(x, y, mean, scale, weight, bias, rows, channels, BR: tl.constexpr, BC: tl.constexpr):
    """y = relu((x - mean) scale weight + bias)."""
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    there = column < channels
    place = row[:, None] * channels + column[None, :]
    valid = (row < rows)[:, None] & there[None, :]
    factor = tl.load(scale + column, mask=there, other=0.0) * tl.load(weight + column, mask=there, other=0.0)
    centre = tl.load(mean + column, mask=there, other=0.0)
    offset = tl.load(bias + column, mask=there, other=0.0)
    value = tl.load(x + place, mask=valid, other=0.0).to(tl.float32)
    result = tl.maximum((value - centre[None, :]) * factor[None, :] + offset[None, :], 0.0)
    tl.store(y + place, result.to(y.dtype.element_ty), mask=valid)


@triton.jit
def slopes(
    x, dy, mean, scale, weight, bias, part_bias, part_weight, tickets, rows, channels, stride, parts, each, d_bias,
    d_weight,
    BR: tl.constexpr, BC: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Σ g and Σ g (x - mean) scale, g being dy where the ReLU let through; parts as those of ``moments``."""
    part, block = tl.program_id(0), tl.program_id(1)
    column = block * BC + tl.arange(0, BC)
    there = column < channels
    centre = tl.load(mean + column, mask=there, other=0.0)[None, :]
    factor = tl.load(scale + column, mask=there, other=0.0)
    slope = (factor * tl.load(weight + column, mask=there, other=0.0))[None, :]
    offset = tl.load(bias + column, mask=there, other=0.0)[None, :]
    first = part.to(tl.int64) * each
    last = tl.minimum(first + each, rows)
    plain = tl.zeros((BR, BC), tl.float32)
    along = tl.zeros((BR, BC), tl.float32)
    for start in tl.range(0, each, BR * UNROLL, num_stages=STAGES):
        for step in tl.static_range(UNROLL):
            row = first + start + step * BR + tl.arange(0, BR)
            valid = (row < last)[:, None] & there[None, :]
            value = tl.load(x + row[:, None] * channels + column[None, :], mask=valid, other=0.0).to(tl.float32)
            g = tl.load(dy + row[:, None] * stride + column[None, :], mask=valid, other=0.0).to(tl.float32)
            apart = value - centre
            g = tl.where(apart * slope + offset > 0.0, g, 0.0)
            plain += g
            along += g * apart
    tl.store(part_bias + part * channels + column, tl.sum(plain, axis=0), mask=there)
    tl.store(part_weight + part * channels + column, tl.sum(along, axis=0) * factor, mask=there)
    if _is_last(tickets + block, parts):
        number = tl.arange(0, BP)
        place = number[:, None] * channels + column[None, :]
        valid = (number < parts)[:, None] & there[None, :]
        biases = tl.load(part_bias + place, mask=valid, other=0.0, cache_modifier=".cg")
        weights = tl.load(part_weight + place, mask=valid, other=0.0, cache_modifier=".cg")
        tl.store(d_bias + column, tl.sum(biases, axis=0), mask=there)
        tl.store(d_weight + column, tl.sum(weights, axis=0), mask=there)


@triton.jit
def spread(
    x, dy, dx, mean, scale, weight, bias, d_bias, d_weight, rows, channels, stride,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx = weight scale (g - Σg / rows - unit Σ(g unit) / rows), unit being (x - mean) scale."""
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    there = column < channels
    valid = (row < rows)[:, None] & there[None, :]
    centre = tl.load(mean + column, mask=there, other=0.0)[None, :]
    factor = tl.load(scale + column, mask=there, other=0.0)[None, :]
    gain = tl.load(weight + column, mask=there, other=0.0)[None, :]
    offset = tl.load(bias + column, mask=there, other=0.0)[None, :]
    plain = tl.load(d_bias + column, mask=there, other=0.0)[None, :] / rows
    along = tl.load(d_weight + column, mask=there, other=0.0)[None, :] / rows
    value = tl.load(x + row[:, None] * channels + column[None, :], mask=valid, other=0.0).to(tl.float32)
    g = tl.load(dy + row[:, None] * stride + column[None, :], mask=valid, other=0.0).to(tl.float32)
    unit = (value - centre) * factor
    g = tl.where((value - centre) * (factor * gain) + offset > 0.0, g, 0.0)
    result = gain * factor * (g - plain - unit * along)
    tl.store(dx + row[:, None] * channels + column[None, :], result.to(dx.dtype.element_ty), mask=valid)

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""relu(batch norm) of maps whose channels are last, seen as [rows, channels]: three kernels forward, three back.

Numbers are computed in float32 whatever the maps are in. Nothing is added by atomics: same input, same bits.
"""

import triton
import triton.language as tl


@triton.jit
def moments(x, mean, squares, rows, channels, each, BR: tl.constexpr, BC: tl.constexpr):
    """Mean and Σ(x - mean)² over ``each`` rows: [parts, channels]; about the first row, so that nothing cancels."""
    part, block = tl.program_id(0), tl.program_id(1)
    column = block * BC + tl.arange(0, BC)
    there = column < channels
    first = part.to(tl.int64) * each
    about = tl.load(x + first * channels + column, mask=there, other=0.0).to(tl.float32)
    sums = tl.zeros((BR, BC), tl.float32)
    seconds = tl.zeros((BR, BC), tl.float32)
    last = tl.minimum(first + each, rows)
    for start in range(0, each, BR):
        row = first + start + tl.arange(0, BR)
        valid = (row < last)[:, None] & there[None, :]
        value = tl.load(x + row[:, None] * channels + column[None, :], mask=valid, other=0.0).to(tl.float32)
        apart = tl.where(valid, value - about[None, :], 0.0)
        sums += apart
        seconds += apart * apart
    count = (last - first).to(tl.float32)
    total = tl.sum(sums, axis=0)
    tl.store(mean + part * channels + column, about + total / count, mask=there)
    tl.store(squares + part * channels + column, tl.sum(seconds, axis=0) - total * total / count, mask=there)


@triton.jit
def settle(
    mean, squares, parts, each, rows, channels, out_mean, out_scale, running_mean, running_var, bias,
    eps, momentum, BP: tl.constexpr, BC: tl.constexpr, TRACKED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """All parts' mean and 1/√(variance + eps), and the running ones moved towards them; bias is what x lacks."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    there = column < channels
    sums = tl.zeros((BP, BC), tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        valid = (part < parts)[:, None] & there[None, :]
        count = (tl.minimum((part + 1) * each, rows) - part * each).to(tl.float32)
        sums += tl.load(mean + part[:, None] * channels + column[None, :], mask=valid, other=0.0) * count[:, None]
    centre = tl.sum(sums, axis=0) / rows
    sums = tl.zeros((BP, BC), tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        valid = (part < parts)[:, None] & there[None, :]
        count = (tl.minimum((part + 1) * each, rows) - part * each).to(tl.float32)
        own = tl.load(mean + part[:, None] * channels + column[None, :], mask=valid, other=0.0)
        apart = tl.where(valid, own - centre[None, :], 0.0)
        second = tl.load(squares + part[:, None] * channels + column[None, :], mask=valid, other=0.0)
        sums += second + apart * apart * count[:, None]
    variance = tl.sum(sums, axis=0) / rows
    tl.store(out_mean + column, centre, mask=there)
    tl.store(out_scale + column, 1.0 / tl.sqrt(variance + eps), mask=there)
    if TRACKED:
        seen = centre
        if BIASED:
            seen += tl.load(bias + column, mask=there, other=0.0)
        before = tl.load(running_mean + column, mask=there, other=0.0)
        tl.store(running_mean + column, before + momentum * (seen - before), mask=there)
        before = tl.load(running_var + column, mask=there, other=0.0)
        unbiased = variance * (rows / (rows - 1.0))
        tl.store(running_var + column, before + momentum * (unbiased - before), mask=there)


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
    x, dy, mean, scale, weight, bias, part_bias, part_weight, rows, channels, stride, each,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Σ g and Σ g (x - mean) scale over ``each`` rows, g being dy where the ReLU let through: [parts, channels]."""
    part, block = tl.program_id(0), tl.program_id(1)
    column = block * BC + tl.arange(0, BC)
    there = column < channels
    centre = tl.load(mean + column, mask=there, other=0.0)[None, :]
    factor = tl.load(scale + column, mask=there, other=0.0)[None, :]
    gain = tl.load(weight + column, mask=there, other=0.0)[None, :]
    offset = tl.load(bias + column, mask=there, other=0.0)[None, :]
    first = part.to(tl.int64) * each
    last = tl.minimum(first + each, rows)
    plain = tl.zeros((BR, BC), tl.float32)
    along = tl.zeros((BR, BC), tl.float32)
    for start in range(0, each, BR):
        row = first + start + tl.arange(0, BR)
        valid = (row < last)[:, None] & there[None, :]
        value = tl.load(x + row[:, None] * channels + column[None, :], mask=valid, other=0.0).to(tl.float32)
        g = tl.load(dy + row[:, None] * stride + column[None, :], mask=valid, other=0.0).to(tl.float32)
        unit = (value - centre) * factor
        g = tl.where((value - centre) * (factor * gain) + offset > 0.0, g, 0.0)
        plain += g
        along += g * unit
    tl.store(part_bias + part * channels + column, tl.sum(plain, axis=0), mask=there)
    tl.store(part_weight + part * channels + column, tl.sum(along, axis=0), mask=there)


@triton.jit
def add_up(part_bias, part_weight, parts, channels, d_bias, d_weight, BP: tl.constexpr, BC: tl.constexpr):
    """Both, over all parts."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    there = column < channels
    plain = tl.zeros((BP, BC), tl.float32)
    along = tl.zeros((BP, BC), tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        valid = (part < parts)[:, None] & there[None, :]
        plain += tl.load(part_bias + part[:, None] * channels + column[None, :], mask=valid, other=0.0)
        along += tl.load(part_weight + part[:, None] * channels + column[None, :], mask=valid, other=0.0)
    tl.store(d_bias + column, tl.sum(plain, axis=0), mask=there)
    tl.store(d_weight + column, tl.sum(along, axis=0), mask=there)


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

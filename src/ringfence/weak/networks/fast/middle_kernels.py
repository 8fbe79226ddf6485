# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""A 3 × 3 convolution of maps with few channels, channels last: as matrix products that read each row three times.

Images have zeros around them. Products are in what the map is in, sums in float32; nothing is added by atomics.
One compilation serves all sizes of images: rows begin where vectors may, since channels are multiples of 16.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["height", "width"])
def convolve(
    x, weight, out, height, width, stride, along_k, along_n, along_y, along_x, outputs,
    CHANNELS: tl.constexpr, FLIPPED: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, BK: tl.constexpr,
    BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out[p, n] = Σ over taps and k of x[p + tap, k] weight[tap, k, n]; FLIPPED: x[p - tap, k], the gradient's way.

    A program has BH rows of BW pixels, and walks down the rows that these need: each is multiplied for the row
    above it, its own and the one below, so that it is loaded for each of three columns, not for each of nine taps.
    """
    column, first = tl.program_id(0) * BW + tl.arange(0, BW), tl.program_id(1) * BH
    blocks = tl.cdiv(outputs, BN)
    image, output = (tl.program_id(2) // blocks).to(tl.int64), tl.program_id(2) % blocks * BN + tl.arange(0, BN)
    x += image * height * width * stride
    out += image * height * width * outputs
    channel = tl.arange(0, BK)
    asked = channel < CHANNELS
    if FLIPPED:
        weight += 2 * along_y + 2 * along_x
        along_y, along_x = -along_y, -along_x
    place = weight + (channel * along_k)[:, None] + output[None, :] * along_n
    known = asked[:, None] & (output < outputs)[None, :]
    w00, w10, w20 = _column(place, along_y, known, x)
    w01, w11, w21 = _column(place + along_x, along_y, known, x)
    w02, w12, w22 = _column(place + 2 * along_x, along_y, known, x)
    from_x = column[:, None] - 1
    above = tl.zeros((BW, BN), tl.float32)
    here = tl.zeros((BW, BN), tl.float32)
    for step in tl.range(0, BH + 2, num_stages=STAGES):
        row = first + step - 1
        end = tl.where((row >= 0) & (row < height), width, 0)
        source = x + row * width * stride + (from_x * stride + channel[None, :])
        value = tl.load(source, mask=asked[None, :] & (from_x >= 0) & (from_x < end), other=0.0)
        # all three are on their way before the first is needed
        middle = tl.load(source + stride, mask=asked[None, :] & (from_x < end - 1), other=0.0)
        right = tl.load(source + 2 * stride, mask=asked[None, :] & (from_x < end - 2), other=0.0)
        above = tl.dot(value, w20, above, input_precision="ieee")
        here = tl.dot(value, w10, here, input_precision="ieee")
        below = tl.dot(value, w00, input_precision="ieee")
        above = tl.dot(middle, w21, above, input_precision="ieee")
        here = tl.dot(middle, w11, here, input_precision="ieee")
        below = tl.dot(middle, w01, below, input_precision="ieee")
        above = tl.dot(right, w22, above, input_precision="ieee")
        here = tl.dot(right, w12, here, input_precision="ieee")
        below = tl.dot(right, w02, below, input_precision="ieee")
        there = column < tl.where((step >= 2) & (row <= height), width, 0)
        target = out + (row - 1) * width * outputs + (column[:, None] * outputs + output[None, :])
        tl.store(target, above.to(out.dtype.element_ty), mask=there[:, None] & (output < outputs)[None, :])
        above, here = here, below


@triton.jit
def _column(place, along_y, known, x):
    """The weights of a column of taps, from the top, in what x is in."""
    top = tl.load(place, mask=known, other=0.0).to(x.dtype.element_ty)
    middle = tl.load(place + along_y, mask=known, other=0.0).to(x.dtype.element_ty)
    bottom = tl.load(place + 2 * along_y, mask=known, other=0.0).to(x.dtype.element_ty)
    return top, middle, bottom


@triton.jit(do_not_specialize=["height", "width", "units", "each"])
def weigh(
    x, dy, parts, height, width, x_stride, dy_stride, units, each, channels, outputs,
    BP: tl.constexpr, BX: tl.constexpr, BY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Σ over ``each`` stretches of BP pixels of x[p + tap, c] dy[p, o]: [parts, taps, channels, outputs].

    One matrix product for all taps: a row of x is taken at three columns, and dy in three rows. Stretches come down
    the rows, so that a row of dy is still near when it comes the second time.
    """
    part, blocks = tl.program_id(0), tl.cdiv(outputs, BY)
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    channel, output = tl.program_id(1) // blocks * BX + m % BX, tl.program_id(1) % blocks * BY + n % BY
    tap_x, tap_y = m // BX, n // BY
    asked_m, asked_n = (tap_x < 3) & (channel < channels), (tap_y < 3) & (output < outputs)
    m_place, n_place = (tap_x - 1) * x_stride + channel, (1 - tap_y) * width * dy_stride + output
    across = tl.cdiv(width, BP)
    total = tl.zeros((BM, BN), tl.float32)
    for unit in tl.range(part * each, tl.minimum((part + 1) * each, units), num_stages=STAGES):
        row, strip = unit % height, unit // height
        pixel = strip % across * BP + tl.arange(0, BP)
        start = (strip // across).to(tl.int64) * height * width + row * width
        from_x = pixel[:, None] + (tap_x - 1)[None, :]
        inside = asked_m[None, :] & (from_x >= 0) & (from_x < width)
        value = tl.load(x + start * x_stride + pixel[:, None] * x_stride + m_place[None, :], mask=inside, other=0.0)
        to_y = row + 1 - tap_y
        inside = (asked_n & (to_y >= 0) & (to_y < height))[None, :] & (pixel < width)[:, None]
        g = tl.load(dy + start * dy_stride + pixel[:, None] * dy_stride + n_place[None, :], mask=inside, other=0.0)
        total = tl.dot(tl.trans(value), g, total, input_precision="ieee")
    tap = tap_y[None, :] * 3 + tap_x[:, None]
    target = ((part * 9 + tap) * channels + channel[:, None]) * outputs + output[None, :]
    tl.store(parts + target, total, mask=asked_m[:, None] & asked_n[None, :])


@triton.jit(do_not_specialize=["count"])
def gather(
    parts, d_weight, count, channels, outputs, along_c, along_o, along_y, along_x,
    BP: tl.constexpr, BE: tl.constexpr,
):  # fmt: skip
    """d_weight[o, c, tap] = Σ over parts, always in the same order."""
    number = tl.program_id(0) * BE + tl.arange(0, BE)
    size = 9 * channels * outputs
    total = tl.zeros((BP, BE), tl.float32)
    for start in range(0, count, BP):
        part = start + tl.arange(0, BP)
        valid = (part < count)[:, None] & (number < size)[None, :]
        total += tl.load(parts + part[:, None] * size + number[None, :], mask=valid, other=0.0)
    output, channel, tap = number % outputs, number // outputs % channels, number // outputs // channels
    place = output * along_o + channel * along_c + tap // 3 * along_y + tap % 3 * along_x
    found = tl.sum(total, axis=0).to(d_weight.dtype.element_ty)
    tl.store(d_weight + place, found, mask=number < size)

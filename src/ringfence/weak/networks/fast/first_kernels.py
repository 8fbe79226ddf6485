# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""A 3 × 3 convolution of images of one or a few channels: there is little to multiply, and much to write."""

import triton
import triton.language as tl


@triton.jit
def convolve(
    images, weight, out, pixels, height, width, outputs,
    CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out[p, o] = Σ over taps and channels of images[p + tap, c] weight[o, c, tap]; 0 beyond the image."""
    pixel = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    output = tl.program_id(1) * BC + tl.arange(0, BC)
    x, y = pixel % width, (pixel // width) % height
    total = tl.zeros((BR, BC), tl.float32)
    for tap in tl.static_range(9):
        from_y, from_x = y + (tap // 3 - 1), x + (tap % 3 - 1)
        inside = (pixel < pixels) & (from_y >= 0) & (from_y < height) & (from_x >= 0) & (from_x < width)
        place = (pixel + (tap // 3 - 1) * width + (tap % 3 - 1)) * CHANNELS
        for channel in tl.static_range(CHANNELS):
            value = tl.load(images + place + channel, mask=inside, other=0.0).to(tl.float32)
            factor = tl.load(weight + (output * CHANNELS + channel) * 9 + tap, mask=output < outputs, other=0.0)
            total += value[:, None] * factor.to(tl.float32)[None, :]
    there = (pixel < pixels)[:, None] & (output < outputs)[None, :]
    tl.store(out + pixel[:, None] * outputs + output[None, :], total.to(out.dtype.element_ty), mask=there)


@triton.jit
def weigh(
    images, gradient, parts, pixels, height, width, outputs, each,
    CHANNELS: tl.constexpr, BR: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Σ over ``each`` pixels of images[p + tap, c] gradient[p, o]: [parts, taps and channels, outputs]."""
    part = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1) * BC + tl.arange(0, BC)
    number = tl.arange(0, BT)  # channel × 9 + tap
    tap, channel = number % 9, number // 9
    step_y, step_x = tap // 3 - 1, tap % 3 - 1
    total = tl.zeros((BT, BC), tl.float32)
    for start in range(0, each, BR):
        pixel = part * each + start + tl.arange(0, BR)
        x, y = pixel % width, (pixel // width) % height
        valid = pixel < tl.minimum((part + 1) * each, pixels)
        from_y, from_x = y[None, :] + step_y[:, None], x[None, :] + step_x[:, None]
        inside = valid[None, :] & (from_y >= 0) & (from_y < height) & (from_x >= 0) & (from_x < width)
        inside = inside & (number < 9 * CHANNELS)[:, None]
        place = (pixel[None, :] + step_y[:, None] * width + step_x[:, None]) * CHANNELS + channel[:, None]
        value = tl.load(images + place, mask=inside, other=0.0)
        there = valid[:, None] & (output < outputs)[None, :]
        g = tl.load(gradient + pixel[:, None] * outputs + output[None, :], mask=there, other=0.0)
        total += tl.dot(value.to(g.dtype), g, input_precision="ieee")
    target = parts + (part * BT + number)[:, None] * outputs + output[None, :]
    tl.store(target, total, mask=(output < outputs)[None, :] & (number < BT)[:, None])

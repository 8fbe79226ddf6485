# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""Augmentation of 2-D images in one kernel: every pixel is read where it came from, and changed in brightness."""

import triton
import triton.language as tl


@triton.jit
def mixed(number):
    """As ``draws.mixed``, in unsigned numbers."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB
    return number ^ (number >> 31)


@triton.jit
def source(place, length, scale, shift):
    """x = (x' - d) / s about the middle, as torch's grid_sample counts: pixels' centres, from 0."""
    middle = (2.0 * place + 1.0) / length - 1.0
    middle = (middle - 2.0 * shift) / scale
    return ((middle + 1.0) * length - 1.0) / 2.0


@triton.jit
def pixel_at(image, y, x, height, width, there):
    """A pixel; 0 beyond the image."""
    inside = there & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return tl.load(image + y * width + x, mask=inside, other=0).to(tl.float32)


@triton.jit
def vary(
    images, out, key, scale, shift, draws, bias, channels, height, width, draw_stride, intensity, noise,
    BIAS: tl.constexpr, NOISE: tl.constexpr, BRIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Bytes in, bytes out: bilinear, rounded; e^field (c x^γ + b) + noise, where the moved image is not 0."""
    plane = tl.program_id(0)
    row = plane // channels
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = pixel < height * width
    y, x = pixel // width, pixel % width
    from_y = source(y.to(tl.float32), height, tl.load(scale + row * 2), tl.load(shift + row * 2))
    from_x = source(x.to(tl.float32), width, tl.load(scale + row * 2 + 1), tl.load(shift + row * 2 + 1))
    low_y, low_x = tl.floor(from_y), tl.floor(from_x)
    part_y, part_x = from_y - low_y, from_x - low_x
    y0, x0 = low_y.to(tl.int32), low_x.to(tl.int32)
    image = images + plane.to(tl.int64) * height * width
    upper = pixel_at(image, y0, x0, height, width, there) * (1.0 - part_x)
    upper += pixel_at(image, y0, x0 + 1, height, width, there) * part_x
    lower = pixel_at(image, y0 + 1, x0, height, width, there) * (1.0 - part_x)
    lower += pixel_at(image, y0 + 1, x0 + 1, height, width, there) * part_x
    value = tl.floor(upper * (1.0 - part_y) + lower * part_y + 0.5)
    if BRIGHT:
        own = draws + row * draw_stride + (plane % channels) * 4
        contrast = intensity * (2.0 * tl.load(own) - 1.0)
        brightness = intensity * (2.0 * tl.load(own + 1) - 1.0)
        gamma = tl.exp(intensity * (2.0 * tl.load(own + 2) - 1.0))
        some = value > 0.0
        grey = tl.exp(gamma * tl.log(tl.where(some, value, 1.0) / 255.0))
        grey = (1.0 + contrast) * (grey - 0.5) + 0.5 + 0.5 * brightness
        if BIAS:
            grey = grey * tl.exp(tl.load(bias + plane.to(tl.int64) * height * width + pixel, mask=there, other=0.0))
        if NOISE:
            strength = noise * tl.load(own + 3)
            number = (plane % channels) * height * width + pixel + 1
            count = number.to(tl.uint64) + (1 << 32)
            bits = mixed(tl.load(key + row).to(tl.uint64) + count * 0x9E3779B97F4A7C15)
            total = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48)
            grey += strength * ((total.to(tl.int32) - 131070).to(tl.float32) * (1.7320508075688772 / 65536.0))
        grey = tl.minimum(tl.maximum(255.0 * grey, 0.0), 255.0)
        value = tl.where(some, tl.floor(grey + 0.5), 0.0)
    tl.store(out + plane.to(tl.int64) * height * width + pixel, value.to(tl.uint8), mask=there)


@triton.jit
def move(masks, out, scale, shift, channels, height, width, BLOCK: tl.constexpr):
    """Bytes in, bytes out: those of the nearest pixel, halves to the even one; 0 beyond the image."""
    plane = tl.program_id(0)
    row = plane // channels
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = pixel < height * width
    from_y = source((pixel // width).to(tl.float32), height, tl.load(scale + row * 2), tl.load(shift + row * 2))
    from_x = source(
        (pixel % width).to(tl.float32), width, tl.load(scale + row * 2 + 1), tl.load(shift + row * 2 + 1)
    )
    y, x = nearest(from_y), nearest(from_x)
    inside = there & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    start = plane.to(tl.int64) * height * width
    value = tl.load(masks + start + y * width + x, mask=inside, other=0)
    tl.store(out + start + pixel, value, mask=there)


@triton.jit
def nearest(place):
    """As C's nearbyint."""
    low = tl.floor(place)
    part = place - low
    odd = (low.to(tl.int32) & 1) == 1
    up = (part > 0.5) | ((part == 0.5) & odd)
    return low.to(tl.int32) + up.to(tl.int32)

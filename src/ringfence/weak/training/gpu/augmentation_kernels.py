# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""Augmentation in few launches: random numbers in one, and 2-D images in one more.

There every pixel is read where it came from, and changed in brightness.
"""

import triton
import triton.language as tl


@triton.jit
def mixed(number):
    """As ``draws.mixed``, in unsigned numbers."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB
    return number ^ (number >> 31)


@triton.jit
def bits_of(key, place):
    """The random bits of a key's number ``place``, from 0: uint64."""
    return mixed(key + (place + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)


@triton.jit
def uniform(key, place):
    """As ``draws.uniform``."""
    return (bits_of(key, place) >> 40).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def bell(key, place):
    """As ``draws.bell``."""
    bits = bits_of(key, place)
    total = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48)
    return (total.to(tl.int32) - 131070).to(tl.float32) * (1.7320508075688772 / 65536.0)


@triton.jit
def draw(
    keys, scale, shift, levels, coarse, depth, scaling, shifting, strength,
    AXES: tl.constexpr, FLIPS: tl.constexpr, FLIP_PLACE: tl.constexpr, FIELD: tl.constexpr, BIAS: tl.constexpr,
    CHANNELS: tl.constexpr, LEVELS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """As ``variation.drawn``: a program for each image. FLIPS has a bit for each axis, from the first.

    LEVELS and NODES are of one channel, and powers of two.
    """
    row = tl.program_id(0)
    key = tl.load(keys + row).to(tl.uint64)
    axis = tl.arange(0, 4)
    there = axis < AXES
    scales = 1.0 + scaling * (2.0 * uniform(key, axis) - 1.0)
    shifts = shifting * (2.0 * uniform(key, AXES + axis) - 1.0)
    if AXES == 3:  # by whole slices
        whole = tl.div_rn(nearest(shifts * depth).to(tl.float32), tl.full((4,), 1.0, tl.float32) * depth)
        scales, shifts = tl.where(axis == 0, 1.0, scales), tl.where(axis == 0, whole, shifts)
    turned = (uniform(key, FLIP_PLACE + axis) < 0.5) & (((tl.full((4,), FLIPS, tl.int32) >> axis) & 1) == 1)
    tl.store(scale + row * AXES + axis, tl.where(turned, -scales, scales), mask=there)
    tl.store(shift + row * AXES + axis, shifts, mask=there)
    level, node = tl.arange(0, LEVELS), tl.arange(0, NODES)
    for channel in tl.static_range(CHANNELS):
        place = channel * LEVELS + level
        tl.store(levels + row * (CHANNELS * LEVELS) + place, uniform(key, 3 * AXES + place))
        if BIAS:
            place = channel * NODES + node
            tl.store(coarse + row * (CHANNELS * NODES) + place, strength * bell(key, FIELD + place))


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
def near(distance):
    """The weight of a node less than 1 away, in bicubic interpolation with torch's A = -0.75."""
    return (1.25 * distance - 2.25) * distance * distance + 1.0


@triton.jit
def far(distance):
    """The weight of a node between 1 and 2 away."""
    return ((-0.75 * distance + 3.75) * distance - 6.0) * distance + 3.0


@triton.jit
def cubic(before, low, high, after, part):
    """Between ``low`` and ``high``."""
    return before * far(part + 1.0) + low * near(part) + high * near(1.0 - part) + after * far(2.0 - part)


@triton.jit
def node_at(line, node, NODES: tl.constexpr):
    """A line's node; beyond its ends the last one."""
    return tl.load(line + tl.minimum(tl.maximum(node, 0), NODES - 1))


@triton.jit
def along(coarse, line, node, part, NODES: tl.constexpr):
    """Within a line of the coarse grid; beyond its border the last one."""
    start = coarse + tl.minimum(tl.maximum(line, 0), NODES - 1) * NODES
    return cubic(
        node_at(start, node - 1, NODES), node_at(start, node, NODES), node_at(start, node + 1, NODES),
        node_at(start, node + 2, NODES), part,
    )  # fmt: skip


@triton.jit
def field_at(coarse, y, x, ratio_y, ratio_x, NODES: tl.constexpr):
    """As torch's bicubic interpolation, without aligned corners; ratios are NODES over the image's sides."""
    at_y, at_x = ratio_y * (y.to(tl.float32) + 0.5) - 0.5, ratio_x * (x.to(tl.float32) + 0.5) - 0.5
    low_y, low_x = tl.floor(at_y), tl.floor(at_x)
    part_y, part_x = at_y - low_y, at_x - low_x
    line, node = low_y.to(tl.int32), low_x.to(tl.int32)
    return cubic(
        along(coarse, line - 1, node, part_x, NODES), along(coarse, line, node, part_x, NODES),
        along(coarse, line + 1, node, part_x, NODES), along(coarse, line + 2, node, part_x, NODES), part_y,
    )  # fmt: skip


@triton.jit
def vary(
    images, out, key, scale, shift, draws, coarse, channels, height, width, draw_stride, ratio_y, ratio_x,
    intensity, noise,
    BIAS: tl.constexpr, NOISE: tl.constexpr, BRIGHT: tl.constexpr, NODES: tl.constexpr, BLOCK: tl.constexpr,
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
            grey = grey * tl.exp(field_at(coarse + plane * (NODES * NODES), y, x, ratio_y, ratio_x, NODES))
        if NOISE:
            strength = noise * tl.load(own + 3)
            number = ((plane % channels) * height * width + pixel).to(tl.int64) + (1 << 32)
            grey += strength * bell(tl.load(key + row).to(tl.uint64), number)
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

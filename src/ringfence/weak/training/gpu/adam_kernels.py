# mypy: ignore-errors
# ruff: noqa: N803 - Triton's kernels: pointers and numbers, constants in capitals
"""The step of Adam and AdamW, for all weights in one launch."""

import triton
import triton.language as tl


@triton.jit
def numbers_at(address):
    """Float32 numbers in memory, from an address in a table."""
    return tl.load(address).to(tl.pointer_type(tl.float32))


@triton.jit
def correction(taken, log_beta):
    """1 - beta^taken, by e^x - 1 with x = taken·log beta: near 0 as a series, where a difference would cancel."""
    x = taken * log_beta
    series = 1.0 + x / 8.0 * (1.0 + x / 9.0)
    series = 1.0 + x / 5.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0 * series))
    series = 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * series))
    return tl.where(x > -0.5, -x * series, 1.0 - tl.exp(x))


@triton.jit
def step(
    table, rate, beta1, rest1, log_beta1, beta2, rest2, log_beta2, eps, decay,
    DECAYS: tl.constexpr, DECOUPLED: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """m = β₁m + (1 - β₁)g, v = β₂v + (1 - β₂)g², w -= rate·m̂ / (√v̂ + eps), in the order of torch's fused kernel.

    A program has up to BLOCK numbers of one weight, and a row of the table: where they, their gradients, m, v and
    the weight's number of steps are, this one counted; and how many they are. rest1 and rest2 are 1 - β.
    """
    row = table + tl.program_id(0) * COLUMNS
    place = tl.arange(0, BLOCK)
    there = place < tl.load(row + 5)
    weights, firsts, seconds = numbers_at(row) + place, numbers_at(row + 2) + place, numbers_at(row + 3) + place
    taken = tl.load(numbers_at(row + 4))
    speed = tl.load(rate).to(tl.float32)
    w = tl.load(weights, mask=there, other=0.0)
    g = tl.load(numbers_at(row + 1) + place, mask=there, other=0.0)
    m = tl.load(firsts, mask=there, other=0.0)
    v = tl.load(seconds, mask=there, other=0.0)
    if DECAYS:
        if DECOUPLED:
            w -= speed * decay * w
        else:
            g += w * decay
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * (g * g)
    size = speed / correction(taken, log_beta1)
    below = tl.div_rn(tl.sqrt_rn(v), tl.sqrt(correction(taken, log_beta2))) + eps
    w -= tl.div_rn(size * m, below)
    tl.store(weights, w, mask=there)
    tl.store(firsts, m, mask=there)
    tl.store(seconds, v, mask=there)

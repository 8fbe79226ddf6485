# mypy: ignore-errors
"""Single instructions of the GPU, where Triton would write several."""

import triton
import triton.language as tl


@triton.jit
def power(exponent):
    """2^exponent to the last bits of float32; what is below 2^-126 is 0, and needs no case of its own."""
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [exponent], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def reciprocal(number):
    """1 / number to the last bit of float32, for numbers from 1 to infinity."""
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [number], dtype=tl.float32, is_pure=True, pack=1
    )

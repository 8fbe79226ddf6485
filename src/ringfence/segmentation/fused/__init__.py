"""Region's sums on a GPU: one kernel that reads the logits once, and one for the gradient; nothing in between.

kernels has the Triton code for several boxes of a class, class_kernels that for one box of each, binary_kernels
that for one class against one other, small_kernels what is done with the sums. cut decides how the work is divided,
and has all that only speed depends on; launch starts it, sums is what autograd sees.
"""

from ringfence.segmentation.fused.sums import MOST_OBJECTS, FusedSums, fused_sums

__all__ = ["MOST_OBJECTS", "FusedSums", "fused_sums"]

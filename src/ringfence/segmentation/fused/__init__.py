"""Region's sums on a GPU: one kernel that reads the logits once, and one for the gradient; nothing in between.

kernels has the Triton code (binary_kernels that for one class against one other, small_kernels what is done with
the sums), cut decides how the work is divided, launch starts it, sums is what autograd sees.
"""

from ringfence.segmentation.fused.sums import MOST_OBJECTS, FusedSums, fused_sums

__all__ = ["MOST_OBJECTS", "FusedSums", "fused_sums"]

"""What can be measured, differentiably, on a segmentation network's output."""

from ringfence.segmentation.region import Region, Strips

__all__ = ["Region", "Strips"]

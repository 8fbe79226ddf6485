"""A constraint of your own: the object keeps its distance from the image's border. Used by its class path.

ringfence train boxes-small --data.prepared PREPARED \
    --constraints.clearance '{class_path: own_constraint.Clearance, init_args: {pixels: 2}}'
"""

from dataclasses import dataclass

import torch

import ringfence as rf
from ringfence import weak


@dataclass(frozen=True)
class Clearance(weak.Constraint):
    """f = Σ of the probabilities of the outermost ``pixels`` rows and columns <= 0."""

    pixels: int = 2
    tolerance = 1.0  # a softmax is never 0: a pixel in all counts as none

    def targets(self, case: weak.CaseSamples) -> dict[str, torch.Tensor]:
        """True for images of which it holds; known from masks here, from a person perhaps elsewhere."""
        frame = case.mask.clone()
        frame[..., self.pixels : -self.pixels, self.pixels : -self.pixels] = False
        return {"clear": ~frame.flatten(2).any(dim=-1)}

    def moved(self, targets: weak.Targets, motion: weak.Motion) -> dict[str, torch.Tensor]:
        """After a shift nobody knows, unless the image only flips."""
        still = (motion.scale.abs() == 1.0).all(dim=1) & (motion.centre == motion.middle).all(dim=1)
        still = still & (motion.window == 2 * motion.middle).all()  # and no window was cut out
        return {"clear": targets["clear"] & still[:, None]}

    def residual(self, region: rf.segmentation.Region, targets: weak.Targets, unit: weak.Unit) -> rf.Residual:
        """``[images, classes]``."""
        height, width = region.probabilities.shape[-2:]
        frame = torch.ones(height, width, device=region.size.device)
        frame[self.pixels : -self.pixels, self.pixels : -self.pixels] = 0.0
        mass = (region.probabilities * frame).flatten(2).sum(dim=-1)
        scale = float(frame.sum()) if unit == "relative" else 1.0
        return rf.at_most(mass, 0.0, mask=targets["clear"], scale=scale)


if __name__ == "__main__":
    mask = torch.zeros(3, 1, 32, 32, dtype=torch.bool)
    mask[0, 0, 8:20, 8:20] = mask[1, 0, :6, 10:14] = mask[2, 0, 4:9, 4:9] = True
    constraint = weak.make_constraints({"clearance": Clearance(pixels=2)})["clearance"]
    targets = constraint.targets(weak.CaseSamples(torch.zeros(3, 1, 32, 32, dtype=torch.uint8), mask))
    logits = 200.0 * torch.cat([~mask, mask], dim=1).float()
    print(constraint.residual(rf.segmentation.Region(logits), targets, "pixels"))  # images 0 and 2: it holds
    print(constraint.residual(rf.segmentation.Region(-logits), targets, "pixels"))  # everywhere else: violated

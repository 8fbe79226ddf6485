"""What a constrained minimum is worth: feasibility, duality gap, and how far from the optimum at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """gap = E - g(λ) = -Σ λ f, with λ >= 0 the derivative of the method's loss with respect to each f.

    If the problem is convex and θ minimises the method's loss E(θ) + Σ ..., then θ also minimises the
    Lagrangian at λ, so g(λ) = E - gap is a lower bound of the optimum E*, and if θ is feasible besides,
    0 <= E(θ) - E* <= gap. For the log-barrier extension gap <= PN/t whatever θ is (the paper's Proposition 1).
    For a network, which is not convex, these numbers describe the point and promise nothing about the optimum.

    With ``reduction="sum"``, certificates of disjoint parts of the data add up: ``sum(certificates)`` is that of
    the whole.

    Attributes:
        objective: E(θ), the loss without the constraints' terms.
        feasible: whether every residual is at most ``tolerance``.
        worst: the largest violation max(f, 0), in units of the residual's scale.
        worst_name: the constraint with that violation; None if there is none.
        gap: -Σ λ f.
        bound: PN/t for the barrier (in general Σ c/t, with c the weight over the reduction's divisor); None for
            methods without such a bound.
        count: PN, the number of constraints looked at.
        tolerance: what counted as feasible.
        stationarity: the norm of the gradient of the method's loss, where parameters were given: how near θ is
            to being the minimiser the promise is about.
        reduction: the method's.
    """

    objective: float
    feasible: bool
    worst: float
    worst_name: str | None
    gap: float
    bound: float | None
    count: int
    tolerance: float = 0.0
    stationarity: float | None = None
    reduction: str = "sum"

    @property
    def lower_bound(self) -> float:
        """g(λ) = objective - gap: in the convex case, at the method's minimiser, no feasible point is below."""
        return self.objective - self.gap

    def __add__(self, other: Certificate) -> Certificate:
        if not isinstance(other, Certificate):
            return NotImplemented
        if {self.reduction, other.reduction} != {"sum"}:
            raise ValueError(
                "certificates of parts add up for reduction='sum' alone: a mean divides each part by its own size"
            )
        bound = None if self.bound is None or other.bound is None else self.bound + other.bound
        worse = self if self.worst >= other.worst else other
        return Certificate(
            objective=self.objective + other.objective,
            feasible=self.feasible and other.feasible,
            worst=worse.worst,
            worst_name=worse.worst_name,
            gap=self.gap + other.gap,
            bound=bound,
            count=self.count + other.count,
            tolerance=max(self.tolerance, other.tolerance),
            # gradients of the parts may cancel, so norms do not add up
            stationarity=None,
        )

    def __radd__(self, other: object) -> Certificate:
        return self if other == 0 else NotImplemented  # sum() starts from 0

    def __str__(self) -> str:
        if self.feasible:
            lines = [f"feasible: all {self.count} constraints hold (tolerance {self.tolerance:g})"]
        else:
            lines = [f"NOT feasible: '{self.worst_name}' is violated by up to {self.worst:.4g}"]
        lines += [f"objective       {self.objective:.6g}", f"duality gap     {self.gap:.6g}   (-Σ λ f)"]
        if self.bound is not None:
            lines.append(f"bound           {self.bound:.6g}   (PN/t for unit weights; the gap never exceeds it)")
        if self.stationarity is not None:
            lines.append(f"gradient norm   {self.stationarity:.3g}   (0 at the method's minimiser)")
        lines.append(f"Promised if the problem is convex and this is the method's minimiser: {self._promise()}")
        lines.append("Not promised: anything about the optimum of a non-convex problem, such as a network's.")
        return "\n".join(lines)

    def _promise(self) -> str:
        lower = f"no feasible point has an objective below {self.lower_bound:.6g}"
        if not self.feasible:
            return f"{lower}; this point itself is not feasible, so its objective may lie below the optimum."
        return f"this objective is at most {self.gap:.6g} above the optimum, and {lower}."

"""What a constrained point is worth: feasibility, duality gap, and how far from the optimum at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """gap = -Σ λ f, with λ >= 0 the derivative of the method's loss with respect to each f.

    With s the norm of the loss's gradient in the parameters θ, and an optimum no farther from θ than R, a convex
    problem's optimum E* is bounded at any θ whatsoever:

        E* >= E + Σ λ f - s·R, or E - E* <= gap + s·R,

    since the Lagrangian at λ is convex, is at most E* at the optimum, and falls from θ by no more than s per unit
    of distance. At the method's minimiser s is 0 and the gap alone is the bound, for the log-barrier extension at
    most PN/t (the paper's Proposition 1). **Anywhere else the gap alone bounds nothing**: training ends near a
    minimiser, not at it. For a network, which is not convex, these numbers describe the point and promise nothing.

    With ``reduction="sum"``, certificates of disjoint parts of the data add up: ``sum(certificates)`` is that of
    the whole (but for the gradient norm, which parts do not tell).

    Attributes:
        objective: E(θ), the loss without the constraints' terms.
        feasible: whether every residual is at most ``tolerance``.
        worst: the largest violation max(f, 0), in units of the residual's scale.
        worst_name: the constraint with that violation; None if there is none.
        gap: -Σ λ f. Only at the method's minimiser does it bound E - E*.
        bound: PN/t for the barrier (in general Σ c/t, with c the weight over the reduction's divisor), which the
            gap never exceeds; None for methods without such a bound.
        count: PN, the number of constraints looked at.
        tolerance: what counted as feasible.
        stationarity: s, where parameters were given.
        radius: R, where it was given.
        reduction: the method's.
        surrogate: whether a residual stands for another one (``ringfence.surrogate``). λ and the gap are then about
            the stand-ins, and nothing is promised about what is really limited.
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
    radius: float | None = None
    reduction: str = "sum"
    surrogate: bool = False

    @property
    def suboptimality(self) -> float | None:
        """gap + s·R: in the convex case E - E* is at most this, here and anywhere; None without s and R."""
        if self.stationarity is None or self.radius is None or self.surrogate:
            return None
        return self.gap + self.stationarity * self.radius

    @property
    def lower_bound(self) -> float | None:
        """E - gap - s·R: in the convex case nothing feasible within R is lower; None without s and R."""
        worst = self.suboptimality
        return None if worst is None else self.objective - worst

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
            surrogate=self.surrogate or other.surrogate,
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
            lines.append(f"gap's limit     {self.bound:.6g}   (PN/t for unit weights; the gap never exceeds it)")
        if self.stationarity is not None:
            lines.append(f"gradient norm   {self.stationarity:.3g}   (0 at the method's minimiser)")
        if self.radius is not None:
            lines.append(f"radius          {self.radius:g}   (an optimum is no farther away, says the caller)")
        return "\n".join([*lines, *self._promises()])

    def _promises(self) -> list[str]:
        worst = self.suboptimality
        if self.surrogate:
            return ["The gap is no bound: it is about a surrogate, not about what is really limited."]
        if worst is None:
            here = (
                "no gradient norm was asked for"
                if self.stationarity is None
                else f"the gradient norm is {self.stationarity:.3g}"
            )
            return [
                f"The gap is no bound here: it is one at the method's exact minimiser alone, and {here}. Give "
                "parameters= and radius= for a bound that holds at any point of a convex problem."
            ]
        lower = f"no feasible point within the radius has an objective below {self.lower_bound:.6g}"
        if self.feasible:
            above = f"at most {worst:.6g} above the optimum (gap + gradient norm × radius)"
            promise = f"this objective is {above}, and {lower}."
        else:
            promise = f"{lower}; this point itself is not feasible, so its objective may lie below the optimum."
        return [
            f"Promised if the problem is convex: {promise}",
            "Not promised: anything about the optimum of a non-convex problem, such as a network's.",
        ]

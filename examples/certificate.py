"""A certificate you can check: on a convex problem, is the true distance to the optimum below the promised one?

Project a point c onto a polytope, min ½‖x - c‖² subject to A x <= b, by minimising the log-barrier extension's
loss for growing t. Beside each t: what the certificate promises, and the truth, from cvxpy's exact optimum.

    python examples/certificate.py
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import ringfence as rf


def problem(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A (12 constraints on 6 variables), b, and a point c outside the polytope."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    return a, torch.ones(12, dtype=torch.float64), 3.0 * torch.randn(6, generator=generator, dtype=torch.float64)


def objective(x: Tensor, c: Tensor) -> Tensor:
    """E(x) = ½‖x - c‖²."""
    return 0.5 * (x - c).square().sum()


def minimise(x: Tensor, fence: rf.Method, a: Tensor, b: Tensor, c: Tensor) -> None:
    """Move x to the minimiser of E + Σ ψ_t, from wherever it is: no feasible start is needed."""
    optimiser = torch.optim.LBFGS(
        [x], max_iter=2000, tolerance_grad=1e-10, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss: Tensor = objective(x, c) + fence(polytope=rf.at_most(a @ x, b))
        loss.backward()
        return loss

    optimiser.step(closure)


def exact_optimum(a: Tensor, b: Tensor, c: Tensor) -> float:
    """The oracle: cvxpy's optimal value."""
    try:
        import cvxpy
    except ModuleNotFoundError:
        sys.exit("this example compares with cvxpy: pip install cvxpy")
    x = cvxpy.Variable(len(c))
    goal = cvxpy.Minimize(0.5 * cvxpy.sum_squares(x - c.numpy()))
    return float(cvxpy.Problem(goal, [a.numpy() @ x <= b.numpy()]).solve(solver=cvxpy.CLARABEL))


def main() -> None:
    """Print the table, then the last certificate in words."""
    a, b, c = problem()
    best = exact_optimum(a, b, c)
    print(f"min ½‖x - c‖² s.t. Ax <= b: {len(b)} constraints, optimum {best:.6f} (cvxpy)\n")
    print(f"{'t':>8}{'feasible':>10}{'objective':>13}{'true distance':>16}{'gap':>13}{'bound PN/t':>13}")
    x = c.clone().requires_grad_()
    fence = rf.LogBarrier(t=1.0, mu=4.0)
    for _ in range(9):
        minimise(x, fence, a, b, c)
        # the optimum is the feasible point nearest to c: no farther from it than x is, so from x at most twice that
        radius = 2.0 * (x - c).norm().item()
        certificate = fence.certificate(
            objective(x, c), polytope=rf.at_most(a @ x, b), parameters=[x], radius=radius
        )
        true = certificate.objective - best
        print(
            f"{fence.t:>8g}{'yes' if certificate.feasible else 'no':>10}{certificate.objective:>13.6f}"
            f"{true:>16.6f}{certificate.gap:>13.6f}{certificate.bound:>13.6f}"
        )
        fence.step()
    print(
        "\nAt these minimisers the true distance never exceeds the gap, nor the gap PN/t; anywhere else it is gap"
    )
    print("+ gradient norm × radius that bounds it. The last certificate in words:\n")
    print(certificate)


if __name__ == "__main__":
    main()

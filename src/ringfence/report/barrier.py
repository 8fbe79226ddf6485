"""The standard barrier and its extension, as a table and as the paper's first figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ringfence.barrier import log_barrier, log_barrier_dual, standard_log_barrier
from ringfence.extras import require
from ringfence.files import write_figure


def barrier_table(z: Sequence[float], t: Sequence[float]) -> str:
    """A text table of standard barrier, extension ψ_t and λ = ψ_t' for every t and z."""
    points = torch.tensor(list(z), dtype=torch.float64)
    lines = [f"{'t':>10} {'z':>12} {'-log(-z)/t':>14} {'psi_t(z)':>14} {'lambda':>14}"]
    for sharpness in t:
        columns = zip(
            points.tolist(),
            standard_log_barrier(points, sharpness).tolist(),
            log_barrier(points, sharpness).tolist(),
            log_barrier_dual(points, sharpness).tolist(),
            strict=True,
        )
        for point, standard, extended, dual in columns:
            lines.append(f"{sharpness:>10g} {point:>12g} {standard + 0.0:>14.6g} {extended:>14.6g} {dual:>14.6g}")
    return "\n".join(lines)


def barrier_figure(path: str | Path, t: Sequence[float] = (1.0, 1.5, 2.5, 5.0)) -> None:
    """Draw both barriers for several t side by side, and the hard indicator they approach, into ``path``."""
    if not Path(path).suffix:
        raise ValueError(f"'{path}' needs an ending that says what to draw: .png, .svg or .pdf")
    require("matplotlib", "drawing", "plot")
    from matplotlib.figure import Figure  # no pyplot: nothing global, no screen needed

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    z = torch.linspace(-3.0, 1.0, 4001, dtype=torch.float64)
    shades = [0.25 + 0.75 * place / max(len(t) - 1, 1) for place in range(len(t))]
    for axes, function, title in (
        (left, standard_log_barrier, "Standard log-barrier: infinite when infeasible"),
        (right, log_barrier, "Log-barrier extension $\\tilde{\\psi}_t$: defined everywhere"),
    ):
        for sharpness, shade in zip(t, shades, strict=True):
            axes.plot(z, function(z, sharpness), color=(0.75, 0.15, 0.2, shade), label=f"t = {sharpness:g}")
        if axes is right:
            junctions = torch.tensor([-1.0 / sharpness**2 for sharpness in t], dtype=torch.float64)
            heights = [float(log_barrier(z0, sharpness)) for z0, sharpness in zip(junctions, t, strict=True)]
            axes.plot(junctions, heights, "o", color="0.2", markersize=4, label="junction $-1/t^2$")
        axes.plot([-3.0, 0.0, 0.0], [0.0, 0.0, 6.0], color="0.6", linestyle=":", label="hard limit")
        axes.axvspan(0.0, 1.0, color="0.93", zorder=0)
        axes.text(0.5, -1.2, "infeasible", ha="center", color="0.4")
        axes.set(xlim=(-3.0, 1.0), ylim=(-1.5, 6.0), xlabel="$z$  (constraint: $z \\leq 0$)", title=title)
        axes.title.set_fontsize(10)
    right.legend(loc="upper left", fontsize=8)
    write_figure(path, figure, dpi=160)

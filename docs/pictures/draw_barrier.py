"""Draw docs/pictures/barrier.png, the figure on the README's first screen (``make pictures``)."""

from pathlib import Path

from ringfence.report.barrier import barrier_figure

if __name__ == "__main__":
    target = Path(__file__).with_name("barrier.png")
    barrier_figure(target)
    print(f"drawn: {target}")

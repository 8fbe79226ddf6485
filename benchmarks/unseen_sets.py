"""More kinds of generated sets, made after plans were done, to see what these do with what is new to them.

    python benchmarks/unseen_sets.py hearts downloads/hearts

Folders are as those of `generated_sets.py`, which has simple objects on a plain background. Here there are things
without a label that look like those that have one, classes as bright as each other, and shapes that curve. The
first five led to labels from brightness and steep strips (docs/plan-choices.md); the others were made after those,
and the last four when all else was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from generated_sets import Scene, main, write_folder

Shape: TypeAlias = tuple[int, int, int]
Clean: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.floating[Any]]]
"""Labels ``[slices, rows, columns]`` and clean channels ``[channels, ...]``, in units of the noise."""


@dataclass(frozen=True)
class Unseen:
    """One kind of set.

    Attributes:
        about: in a line.
        shape: slices, rows and columns of a volume.
        spacing: millimetres along the same.
        classes: how many there are.
        make: draws a case.
        cases: for training.
    """

    about: str
    shape: Shape
    spacing: tuple[float, float, float]
    classes: int
    make: Callable[[Shape, np.random.Generator], Clean]
    cases: int = 20


def hearts(shape: Shape, random: np.random.Generator) -> Clean:
    """A wall (2) around a chamber (1), and beside it a crescent (3) that is as bright as the chamber."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    middle = np.array([height, width]) / 2.0 + random.uniform(-8.0, 8.0, 2)
    turn, outer = random.uniform(0.0, 2.0 * np.pi), random.uniform(20.0, 26.0)
    wall, stretch = random.uniform(6.0, 9.0), random.uniform(0.85, 1.15)
    for number in range(1, depth - 1):
        shrink = 1.0 - 0.45 * (number / (depth - 1)) ** 2
        centre = middle + random.normal(0.0, 0.6, 2)
        radius = _radius(shape, centre, stretch)
        beside = centre + np.array([np.sin(turn), np.cos(turn)]) * outer * shrink * 0.95
        labels[number][_radius(shape, beside, 1.0 / stretch) < outer * shrink * 0.95] = 3
        labels[number][radius < outer * shrink] = 2
        labels[number][radius < (outer - wall) * shrink] = 1
    levels = np.array([0.0, 4.0, -1.5, 4.0])
    clean = levels[labels] + _lookalikes(shape, random, labels, 5, (5.0, 12.0), 3.0)
    return labels, clean[None]


def livers(shape: Shape, random: np.random.Generator) -> Clean:
    """A large organ (1) with darker lesions in it (2), beside others that are nearly as bright."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    centre = np.array([depth / 2.0, height * 0.48, width * 0.4]) + random.uniform(-1.0, 1.0, 3) * (1.0, 6.0, 6.0)
    radii = np.array([depth * 0.46, random.uniform(34.0, 46.0), random.uniform(38.0, 50.0)])
    organ = _blob(shape, centre, radii, 0.3, random)
    labels[organ] = 1
    inner = np.argwhere(ndimage.binary_erosion(organ, iterations=3))
    for _ in range(random.integers(1, 4)):
        radius = random.uniform(4.0, 10.0)
        lesion = _blob(
            shape, random.choice(inner) + 0.5, np.array([max(radius / 4.0, 0.8), radius, radius]), 0.1, random
        )
        labels[lesion & organ] = 2
    levels = np.array([0.0, 2.5, 0.2])
    return labels, (levels[labels] + _lookalikes(shape, random, labels, 4, (10.0, 22.0), 1.8))[None]


def glands(shape: Shape, random: np.random.Generator) -> Clean:
    """Rings of dark cells around a bright middle (1: the whole of it), in colour, and single cells beside them."""
    labels, clean = np.zeros(shape, np.uint8), np.zeros((3, *shape))
    rim, middle = np.array([-2.5, -3.0, -0.5]), np.array([1.5, 1.0, 2.0])
    for _ in range(random.integers(2, 5)):
        for _ in range(40):
            centre = np.array([0.5, *random.uniform(16.0, np.array(shape[1:]) - 16.0)])
            size = random.uniform(9.0, 19.0)
            radii = np.array([1.0, size * random.uniform(0.7, 1.3), size])
            gland = _blob(shape, centre, radii, 0.25, random)
            if not (ndimage.binary_dilation(gland, iterations=2) & (labels > 0)).any():
                break
        else:
            continue
        inside = ndimage.binary_erosion(gland, iterations=4)
        labels[gland] = 1
        clean[:, gland] = rim[:, None]
        clean[:, inside] = middle[:, None]
    cells = _lookalikes(shape, random, labels, 25, (1.5, 2.5), 1.0)
    return labels, clean + rim[:, None, None, None] * cells


def beans(shape: Shape, random: np.random.Generator) -> Clean:
    """A curved object (1) at any angle, and round ones as bright that nobody labels."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    bow, thick = random.uniform(14.0, 20.0), random.uniform(5.0, 7.0)
    turn, half = random.uniform(0.0, 2.0 * np.pi), random.uniform(0.9, 1.5)
    centre = np.array([height, width]) / 2.0 + random.uniform(-14.0, 14.0, 2)
    for number in range(1, depth - 1):
        rows, columns = np.indices(shape[1:]) + 0.5 - (centre + random.normal(0.0, 0.4, 2))[:, None, None]
        angle = (np.arctan2(rows, columns) - turn + np.pi) % (2.0 * np.pi) - np.pi
        bent = np.clip(angle, -half, half) + turn  # the nearest point of the bow
        away = np.hypot(rows - bow * np.sin(bent), columns - bow * np.cos(bent))
        grown = thick * np.sqrt(max(0.15, 1.0 - ((number - depth / 2.0) / (depth / 2.0)) ** 2))
        labels[number][away < grown] = 1
    return labels, (3.0 * (labels > 0) + _lookalikes(shape, random, labels, 4, (4.0, 8.0), 3.0))[None]


def nodules(shape: Shape, random: np.random.Generator) -> Clean:
    """Balls of 8 to 14 voxels (1), between tubes that are as bright and as thick, and have no label."""
    labels, tubes = np.zeros(shape, np.uint8), np.zeros(shape, bool)
    place = np.indices(shape) + 0.5
    for _ in range(4):
        through, along = random.uniform(8.0, np.array(shape) - 8.0), random.normal(size=3)
        along /= np.linalg.norm(along)
        off = place - through[:, None, None, None]
        off -= along[:, None, None, None] * np.tensordot(along, off, 1)
        tubes |= (off**2).sum(axis=0) < random.uniform(2.5, 4.0) ** 2
    for _ in range(random.integers(1, 4)):
        centre, radius = random.uniform(8.0, np.array(shape) - 8.0), random.uniform(4.0, 7.0)
        ball = _blob(shape, centre, radius * random.uniform(0.9, 1.1, 3), 0.1, random)
        if not (ndimage.binary_dilation(ball, iterations=2) & (labels > 0)).any():
            labels[ball] = 1
    return labels, 3.0 * (tubes | (labels > 0))[None]


def rings(shape: Shape, random: np.random.Generator) -> Clean:
    """Rings (1) around nothing, brighter than what is around them in some cases and darker in others."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    for _ in range(random.integers(1, 4)):
        outer = random.uniform(10.0, 19.0)
        centre = random.uniform((depth * 0.3, 22.0, 22.0), (depth * 0.7, height - 22.0, width - 22.0))
        thick, long, stretch = random.uniform(3.5, 5.5), random.uniform(2.0, depth / 2.0), random.uniform(0.8, 1.2)
        if (_radius(shape, centre[1:], 1.0)[(labels > 0).any(axis=0)] < outer * 1.25 + 5.0).any():
            continue  # too close to another
        for number in range(depth):
            if abs(number + 0.5 - centre[0]) < long:
                radius = _radius(shape, centre[1:] + random.normal(0.0, 0.3, 2), stretch)
                labels[number][(radius < outer) & (radius > outer - thick)] = 1
    level = 3.0 * random.choice([-1.0, 1.0])
    return labels, (level * (labels > 0) + _lookalikes(shape, random, labels, 4, (4.0, 9.0), level))[None]


def lungs(shape: Shape, random: np.random.Generator) -> Clean:
    """Two large dark objects (1) that reach the border of some slices, with bright branches in them."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    for side in (0.22, 0.78):
        centre = np.array([depth / 2.0, height / 2.0, width * side]) + random.uniform(-1.0, 1.0, 3) * (
            1.0,
            6.0,
            5.0,
        )
        radii = np.array([depth * 0.55, random.uniform(38.0, 50.0), random.uniform(20.0, 27.0)])
        labels[_blob(shape, centre, radii, 0.15, random)] = 1
    inner = ndimage.binary_erosion(labels > 0, np.ones((1, 3, 3)), iterations=3)
    branches = _lookalikes(shape, random, np.zeros_like(labels), 60, (1.5, 3.0), 1.0) > 0
    clean = np.where(labels > 0, -5.0, 0.0) + 5.0 * (branches & inner)
    return labels, (clean + _lookalikes(shape, random, labels, 3, (5.0, 9.0), -5.0))[None]


def stars(shape: Shape, random: np.random.Generator) -> Clean:
    """Stars of five arms (1) and of three (2), as bright as each other, in single images of two channels."""
    labels = np.zeros(shape, np.uint8)
    for _ in range(random.integers(2, 5)):
        arms, number = ((5, 1), (3, 2))[random.integers(2)]
        for _ in range(40):
            centre, size = random.uniform(18.0, np.array(shape[1:]) - 18.0), random.uniform(11.0, 17.0)
            rows, columns = np.indices(shape[1:]) + 0.5 - centre[:, None, None]
            angle = np.arctan2(rows, columns) + random.uniform(0.0, 2.0 * np.pi)
            star = np.hypot(rows, columns) < size * (0.62 + 0.38 * np.cos(arms * angle))
            if not (ndimage.binary_dilation(star, iterations=3) & (labels[0] > 0)).any():
                labels[0][star] = number
                break
    channels = [2.5 * (labels > 0), -2.0 * (labels > 0) + _lookalikes(shape, random, labels, 6, (4.0, 8.0), -2.0)]
    return labels, np.stack(channels)


def kidneys(shape: Shape, random: np.random.Generator) -> Clean:
    """A left (1) and a right (2) object that look alike, beside a column; and one (3) whose twin has no label."""
    depth, height, width = shape
    labels, clean = np.zeros(shape, np.uint8), np.zeros(shape)
    middle = np.array([depth, height, width]) / 2.0 + random.uniform(-1.0, 1.0, 3) * (0.5, 5.0, 4.0)
    for number, side, down, radii in (
        (1, -1, 10, (9, 6)),
        (2, 1, 10, (9, 6)),
        (3, -1, -16, (7, 9)),
        (0, 1, -16, (7, 9)),
    ):
        away = np.array([0.0, down, side * 24.0]) + random.uniform(-1.0, 1.0, 3) * (1.0, 4.0, 4.0)
        size = np.array([depth * 0.4, *radii]) * random.uniform(0.85, 1.25, 3)
        one = _blob(shape, middle + away, size, 0.2, random) & (clean == 0.0)
        labels[one] = number
        clean[one] = 3.0 if down > 0 else -3.0
    column = _blob(shape, middle + np.array([0.0, 22.0, 0.0]), np.array([100.0, 7.0, 7.0]), 0.2, random)
    clean[column & (clean == 0.0)] = 5.0
    return labels, (clean + _lookalikes(shape, random, (clean != 0.0).astype(np.uint8), 4, (3.0, 6.0), 3.0))[None]


def onions(shape: Shape, random: np.random.Generator) -> Clean:
    """A core (1) in a shell (2) in a coat (3), and beside them a neighbour (4), as bright as the shell."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    middle = np.array([height, width]) / 2.0 + random.uniform(-9.0, 9.0, 2)
    outer, stretch = random.uniform(17.0, 22.0), random.uniform(0.85, 1.2)
    turn, off = random.uniform(0.0, 2.0 * np.pi), random.uniform(-2.0, 2.0, (2, 2))
    for number in range(1, depth - 1):
        grown = np.sqrt(max(0.2, 1.0 - (1.6 * (number + 0.5 - depth / 2.0) / depth) ** 2)) * outer
        centre = middle + random.normal(0.0, 0.4, 2)
        beside = centre + np.array([np.sin(turn), np.cos(turn)]) * (grown + 6.0)
        labels[number][_radius(shape, beside, 1.0) < 0.45 * grown + 2.0] = 4
        for label, part, shift in ((3, 1.0, 0.0 * off[0]), (2, 0.72, off[0]), (1, 0.4, off[1])):
            labels[number][_radius(shape, centre + shift, stretch) < part * grown] = label
    one, other = np.array([0.0, 2.0, -2.5, 2.0, -2.5]), np.array([0.0, 3.0, 1.0, -2.0, 3.0])
    return labels, np.stack([one[labels] + _lookalikes(shape, random, labels, 4, (4.0, 8.0), -2.5), other[labels]])


def moons(shape: Shape, random: np.random.Generator) -> Clean:
    """A disc (1) that is brighter than what is around it in some cases and darker in others, and its moon (2)."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    centre = np.array([depth, height, width]) / 2.0 + random.uniform(-1.0, 1.0, 3) * (0.5, 10.0, 10.0)
    turn, sign = random.uniform(0.0, 2.0 * np.pi), random.choice([-1.0, 1.0])
    size = random.uniform(13.0, 19.0)
    away = np.array([0.0, np.sin(turn), np.cos(turn)]) * (size + 9.0)
    labels[
        _blob(shape, centre + away, np.array([depth * 0.3, 6.0, 6.0]) * random.uniform(0.8, 1.3), 0.15, random)
    ] = 2
    labels[_blob(shape, centre, np.array([depth * 0.42, size, size * random.uniform(0.8, 1.2)]), 0.2, random)] = 1
    clean = sign * np.array([0.0, 2.5, 2.5])[labels]
    stars = _lookalikes(shape, random, labels, 5, (3.0, 7.0), 2.5 * sign)
    return labels, np.stack([clean + stars, -clean, 0.0 * clean])


def plates(shape: Shape, random: np.random.Generator) -> Clean:
    """A long object (1) of 70 to 120 pixels in wide images, next to dark ones, under extremely bright streaks."""
    depth, height, width = shape
    labels = np.zeros(shape, np.uint8)
    centre = np.array([depth / 2.0, height / 2.0, width / 2.0]) + random.uniform(-1.0, 1.0, 3) * (0.3, 6.0, 22.0)
    radii = np.array([depth * 0.5, random.uniform(14.0, 22.0), random.uniform(35.0, 60.0)])
    labels[_blob(shape, centre, radii, 0.25, random)] = 1
    clean = 2.2 * (labels > 0) + _lookalikes(shape, random, labels, 4, (6.0, 14.0), -3.0)
    streaks = random.random((depth, 1, width)) < 0.01
    return labels, (clean + 30.0 * streaks * (random.random(shape) < 0.1))[None]


def seeds(shape: Shape, random: np.random.Generator) -> Clean:
    """Many small objects of 8 to 13 pixels in colour, light (1) and dark (2), which touch, and dust as bright."""
    labels, clean = np.zeros(shape, np.uint8), np.zeros((3, *shape))
    colours = np.array([[2.5, 2.0, -1.0], [-2.5, -1.0, 1.5]])
    for _ in range(14):
        number = int(random.integers(2))
        centre = np.array([0.5, *random.uniform(6.0, np.array(shape[1:]) - 6.0)])
        size = random.uniform(4.0, 6.0)
        seed = _blob(shape, centre, np.array([1.0, size * random.uniform(0.8, 1.25), size]), 0.1, random)
        if not (seed & (labels > 0)).any():  # they may touch
            labels[seed] = 1 + number
            clean[:, seed] = colours[number][:, None]
    dust = _lookalikes(shape, random, labels, 30, (0.8, 1.4), 1.0)
    return labels, clean + colours[0][:, None, None, None] * dust


UNSEEN: Final = {
    "hearts": Unseen(
        "a chamber, its wall and a crescent as bright as the chamber; slices six times as thick",
        (9, 112, 112),
        (8, 1.4, 1.4),
        3,
        hearts,
    ),
    "livers": Unseen(
        "an organ of 70 to 100 pixels with lesions of 8 to 20 in it, among organs without a label",
        (14, 144, 144),
        (5, 1.2, 1.2),
        2,
        livers,
    ),
    "glands": Unseen(
        "dark rings around bright middles, in colour, single images", (1, 128, 128), (1, 1, 1), 1, glands, 80
    ),
    "beans": Unseen(
        "a curved object at any angle, among round ones without a label", (10, 88, 88), (3, 1, 1), 1, beans
    ),
    "nodules": Unseen(
        "balls of 8 to 14 voxels among tubes without a label, isotropic", (40, 56, 56), (1, 1, 1), 1, nodules
    ),
    "rings": Unseen("rings around nothing, brighter or darker than it", (10, 104, 104), (4, 1, 1), 1, rings),
    "lungs": Unseen(
        "two large objects that reach the borders of slices, with bright branches in them",
        (12, 128, 128),
        (6, 1.5, 1.5),
        1,
        lungs,
    ),
    "stars": Unseen(
        "stars of five arms and of three, as bright as each other, in two channels, single images",
        (1, 120, 120),
        (1, 1, 1),
        2,
        stars,
        80,
    ),
    "kidneys": Unseen(
        "a left and a right object that look alike, and one whose twin on the other side has no label",
        (10, 96, 112),
        (5, 1.4, 1.4),
        3,
        kidneys,
    ),
    "onions": Unseen(
        "a core in a shell in a coat, and a neighbour, in two channels; slices four times as thick",
        (9, 80, 80),
        (4, 1, 1),
        4,
        onions,
    ),
    "moons": Unseen(
        "a disc and its moon, brighter or darker than their surroundings, in three channels; eight cases",
        (10, 96, 96),
        (2.5, 1, 1),
        2,
        moons,
        8,
    ),
    "plates": Unseen(
        "an object of 70 to 120 pixels in wide images with streaks; slices eight times as thick",
        (6, 72, 168),
        (8, 1, 1),
        1,
        plates,
    ),
    "seeds": Unseen(
        "many objects of 8 to 13 pixels that touch, light and dark, in colour, single images",
        (1, 96, 96),
        (1, 1, 1),
        2,
        seeds,
        64,
    ),
}
"""By name; the place of a kind is part of its seed, so that new ones come last."""


def write_set(name: str, folder: Path, seed: int = 0, **more: Any) -> None:
    """Write the set of this name; ``more`` as for ``write_folder``."""
    kind = UNSEEN[name]

    def draw(random: np.random.Generator) -> Scene:
        return (*drawn(kind, random), kind.spacing)

    write_folder(folder, draw, kind.classes, kind.cases, [seed, 100 + list(UNSEEN).index(name)], **more)


def drawn(kind: Unseen, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Labels, and an image with texture, a bias field and noise."""
    labels, clean = kind.make(kind.shape, random)
    blurred = ndimage.gaussian_filter(clean, (0.0, 0.0, 0.8, 0.8))
    ratio = kind.spacing[1] / kind.spacing[0]
    image = []
    for channel in blurred:
        texture = 0.6 * _smooth(kind.shape, 3.0, ratio, random) + 0.8 * _smooth(kind.shape, 14.0, ratio, random)
        field = np.exp(0.2 * _smooth(kind.shape, max(kind.shape) / 2.0, ratio, random))
        image.append(((12.0 + channel + texture) * field + random.normal(0.0, 1.0, kind.shape)) * 40.0)
    return labels, np.stack(image).astype(np.int16)


def _smooth(shape: Shape, width: float, ratio: float, random: np.random.Generator) -> NDArray[np.float64]:
    field = ndimage.gaussian_filter(random.normal(size=shape), (width * ratio, width, width), mode="wrap")
    return np.asarray((field - field.mean()) / max(float(field.std()), 1e-9))


def _radius(shape: Shape, centre: NDArray[np.float64], stretch: float) -> NDArray[np.float64]:
    rows, columns = np.indices(shape[1:]) + 0.5 - centre[:, None, None]
    return np.asarray(np.hypot(rows * stretch, columns / stretch))


def _blob(
    shape: Shape,
    centre: NDArray[np.float64],
    radii: NDArray[np.float64],
    bumps: float,
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """A bumpy ellipsoid."""
    place = (np.indices(shape) + 0.5 - centre[:, None, None, None]) / radii[:, None, None, None]
    if shape[0] == 1:
        place[0] = 0.0
    angle, phases = np.arctan2(place[1], place[2]), random.uniform(0.0, 2.0 * np.pi, 3)
    waves = sum(np.sin((n + 2) * angle + phases[n]) / (n + 1) for n in range(3))
    return np.asarray((place**2).sum(axis=0) < (1.0 + bumps * waves / 1.5) ** 2)


def _lookalikes(
    shape: Shape,
    random: np.random.Generator,
    labels: NDArray[np.uint8],
    count: int,
    radii: tuple[float, float],
    level: float,
) -> NDArray[np.float64]:
    """What objects that nobody labels add to an image, where there is none that is labelled."""
    found = np.zeros(shape)
    near = ndimage.binary_dilation(labels > 0, np.ones((1, 3, 3)), iterations=3)
    for _ in range(count):
        radius, centre = random.uniform(*radii), random.uniform((0.0, 0.0, 0.0), shape)
        depth = max(1.0, radius * shape[0] / shape[1])
        found[_blob(shape, centre, np.array([depth, radius, radius]), 0.15, random) & ~near] = level
    return found


if __name__ == "__main__":
    main(UNSEEN, write_set)

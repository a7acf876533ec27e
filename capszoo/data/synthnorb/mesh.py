"""The few solids from which every toy is modelled.

Parts overlap freely and are never joined: a ray sees only the outermost surface.
Axes: x forward, y left, z up, the table is z = 0. Lengths are in the toy's own unit; `normalised` fixes the scale.
"""

import dataclasses

import numpy as np
import trimesh

_SPHERE = trimesh.creation.icosphere(subdivisions=2)
_MIRROR = np.array([1.0, -1.0, 1.0])


class Toy:
    """A toy in the making: parts are added one by one; `mirror=True` adds the part's left-right twin as well."""

    def __init__(self):
        self._parts: list[trimesh.Trimesh] = []

    def _add(self, mesh: trimesh.Trimesh, mirror: bool) -> None:
        self._parts.append(mesh)
        if mirror:
            self._parts.append(trimesh.Trimesh(mesh.vertices * _MIRROR, mesh.faces[:, ::-1], process=False))

    def hull(self, points, radii=0.0, mirror: bool = False) -> None:
        """Add the convex hull of balls of `radii` (one, or one per point) around `points`: a rounded solid.

        Points on a line make a capsule, points of a quadrilateral a wing or a sheet, eight corners a rounded box.
        """
        points = np.atleast_2d(np.asarray(points, float))
        radii = np.broadcast_to(np.asarray(radii, float), len(points))
        surface = points[:, None] + radii[:, None, None] * _SPHERE.vertices
        self._add(trimesh.convex.convex_hull(surface.reshape(-1, 3)), mirror)

    def tube(self, points, radii, mirror: bool = False) -> None:
        """Add a bent limb through `points`, as thick at each point as `radii` says."""
        points = np.asarray(points, float)
        radii = np.broadcast_to(np.asarray(radii, float), len(points))
        for k in range(len(points) - 1):
            self.hull(points[k : k + 2], radii[k : k + 2], mirror)

    def ball(self, centre, radii, pitch: float = 0.0, mirror: bool = False) -> None:
        """Add an ellipsoid with half axes `radii`, its nose raised by `pitch` degrees."""
        c, s = np.cos(np.radians(pitch)), np.sin(np.radians(pitch))
        turn = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
        vertices = (_SPHERE.vertices * np.asarray(radii, float)) @ turn.T + np.asarray(centre, float)
        self._add(trimesh.Trimesh(vertices, _SPHERE.faces, process=False), mirror)

    def box(self, low, high, radius: float = 0.03, top=(0.0, 0.0, 0.0), mirror: bool = False) -> None:
        """Add a rounded box from corner `low` to corner `high`.

        `top` = (front, back, side) moves the upper edges inwards: the slope of a windscreen, a tail and the sides.
        """
        (x0, y0, z0), (x1, y1, z1) = np.add(low, radius), np.subtract(high, radius)
        front, back, side = top
        lower = [(x, y, z0) for x in (x0, x1) for y in (y0, y1)]
        upper = [(x, y, z1) for x in (x0 + back, x1 - front) for y in (y0 + side, y1 - side)]
        self.hull(lower + upper, radius, mirror)

    def disc(
        self, centre, radius: float, width: float, axis: str = "y", edge: float = 0.02, mirror: bool = False
    ) -> None:
        """Add a round slab of the given `radius` and `width` along `axis`: a wheel, a shield, an engine."""
        angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        rim = (radius - edge) * np.stack([np.cos(angle), np.sin(angle)], 1)
        side = np.repeat([-0.5, 0.5], len(angle)) * max(width - 2 * edge, 0.0)
        columns = list(np.tile(rim, (2, 1)).T)
        columns.insert("xyz".index(axis), side)
        self.hull(np.stack(columns, 1) + np.asarray(centre, float), edge, mirror)

    def normalised(self, yaw: float) -> trimesh.Trimesh:
        """Return all parts as one mesh, turned by `yaw` degrees, standing on z = 0 at the origin, of radius 1.

        The radius is the largest distance of a vertex from the middle of the toy's bounding box.
        """
        mesh = trimesh.util.concatenate(self._parts)
        low, high = mesh.vertices.min(0), mesh.vertices.max(0)
        middle = (low + high) / 2
        scale = np.linalg.norm(mesh.vertices - middle, axis=1).max()
        vertices = (mesh.vertices - [middle[0], middle[1], low[2]]) / scale
        c, s = np.cos(np.radians(yaw)), np.sin(np.radians(yaw))
        turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        return trimesh.Trimesh(vertices @ turn.T, mesh.faces, process=False)


def at(origin: np.ndarray, forward: float, left: float, up: float) -> np.ndarray:
    """Return the point that lies so far forward, left and up of the origin."""
    return origin + np.array([forward, left, up])


def varied(plan, rng: np.random.Generator):
    """Return the plan with each of its floats scaled by its own factor in [0.88, 1.12]."""
    floats = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    return dataclasses.replace(
        plan,
        **{
            name: value * rng.uniform(0.88, 1.12)
            for name, value in floats.items()
            if isinstance(value, float)
        },
    )

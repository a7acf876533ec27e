"""Ray casting: a stereo pair of each view of a toy, under six lightings that share their rays."""

import numpy as np
import trimesh
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from scipy.ndimage import gaussian_filter, uniform_filter

SIZE = 96
ELEVATIONS = tuple(range(30, 75, 5))  # degrees of the cameras above the table
AZIMUTHS = tuple(range(0, 360, 20))  # degrees of the turntable

_SAMPLES = 2  # rays per pixel and axis
_DISTANCE = 8.0  # camera to toy, in radii of the toy
_STEREO_ANGLE = 7.0  # degrees between the cameras' axes, which meet in the toy's middle
_ALBEDO = 0.78  # of the toy, relative to the table
_BOUNCE = 0.05  # light that reaches even the deepest shadow
_TABLE_GLOW = 0.35  # the table's light from below, relative to the room's from above
_BLUR = 0.4  # of the lens, in pixels
_LIFT = 1e-3  # secondary rays start this far above the surface

# Four lamps that stand still while the toy turns: azimuth relative to the cameras, elevation, radius (degrees).
_LAMPS = ((50, 45, 9), (-60, 40, 9), (140, 40, 9), (-140, 50, 9))
# Weight of each lamp and of the diffuse room light, and the grey of the empty table, in each of the six lightings.
LIGHTINGS = (
    ((1.0, 0.7, 0.4, 0.4), 0.8, 229),
    ((1.0, 0.0, 0.4, 0.0), 0.65, 221),
    ((0.0, 1.0, 0.0, 0.3), 0.65, 217),
    ((1.0, 0.4, 0.0, 0.0), 0.55, 232),
    ((0.0, 0.2, 1.0, 0.6), 0.8, 211),
    ((0.2, 0.0, 0.0, 1.0), 0.55, 225),
)


def _dealt(points: np.ndarray) -> np.ndarray:
    """Return one of the points for each sample of the frame, so that every block of samples sees all of them.

    The n x n points are dealt out over each n x n block in Bayer's order, which puts points that lie well apart into
    neighbouring samples: averaging over a block, wherever it begins, leaves no grain.
    """
    order = np.zeros((1, 1), int)
    while order.size < len(points):
        order = np.block([[4 * order, 4 * order + 2], [4 * order + 3, 4 * order + 1]])
    return points.astype(np.float32)[np.tile(order, (SIZE * _SAMPLES // len(order),) * 2).ravel()]


def _spiral(heights: np.ndarray) -> np.ndarray:
    """Return unit vectors of these heights whose directions turn by the golden angle: they cover a sphere evenly."""
    turn, rim = np.arange(len(heights)) * np.pi * (3 - 5**0.5), np.sqrt(1 - heights**2)
    return np.stack([rim * np.cos(turn), rim * np.sin(turn), heights], 1)


_DISC = _dealt(
    _spiral(np.sqrt((np.arange(16) + 0.5) / 16))[:, :2]
)  # the unit disc: the upper hemisphere's shadow
_SPHERE = _dealt(_spiral((np.arange(64) + 0.5) / 32 - 1))


class Renderer:
    """A turntable with one toy, two cameras and four lamps.

    Args:
        toy: a mesh standing on z = 0 around the origin, of radius 1 (see `Toy.normalised`).
        fill: radius of the toy relative to half the frame.
    """

    def __init__(self, toy: trimesh.Trimesh, fill: float):
        self._middle = np.array([0, 0, toy.vertices[:, 2].max() / 2], np.float32)
        self._reach = float(np.linalg.norm(toy.vertices - self._middle, axis=1).max()) + 0.01
        self._half_frame = 1.0 / fill
        self._scene = EmbreeScene()
        TriangleMesh(self._scene, toy.vertices.astype(np.float32), toy.faces.astype(np.int32))

    def render(self, elevation: float, azimuth: float) -> np.ndarray:
        """Return uint8 [6 lightings, 2 cameras, 96, 96] of the toy turned by `azimuth`; left camera first, degrees."""
        offsets = np.array([-0.5, 0.5]) * _STEREO_ANGLE
        return np.stack([self._camera(elevation, offset, azimuth) for offset in offsets], 1)

    def _camera(self, elevation: float, offset: float, azimuth: float) -> np.ndarray:
        # The toy stays and everything else turns the other way: one scene serves all views.
        origin, rays = self._camera_rays(elevation, offset - azimuth)
        point, normal, on_toy = self._first_hits(origin, rays)
        lamps = [self._lamp(point, normal, on_toy, a - azimuth, e, radius) for a, e, radius in _LAMPS]
        room = self._room(point, normal, on_toy)
        images = np.empty((len(LIGHTINGS), SIZE, SIZE), np.uint8)
        on_table = [np.sin(np.radians(e)) for _, e, _ in _LAMPS]
        for k, (weights, diffuse, grey) in enumerate(LIGHTINGS):
            light = sum(w * lamp for w, lamp in zip(weights, lamps, strict=True) if w) + diffuse * room
            light = _BOUNCE + (1 - _BOUNCE) * light / (np.dot(weights, on_table) + diffuse)
            shade = np.where(on_toy, _ALBEDO * light, light)
            pixels = shade.reshape(SIZE, _SAMPLES, SIZE, _SAMPLES).mean((1, 3))
            images[k] = np.clip(grey * gaussian_filter(pixels, _BLUR, mode="nearest"), 0, 255).round()
        return images

    def _camera_rays(self, elevation: float, azimuth: float) -> tuple[np.ndarray, np.ndarray]:
        back, right, up = _frame(azimuth, elevation)
        n = SIZE * _SAMPLES
        across = ((np.arange(n, dtype=np.float32) + 0.5) / n * 2 - 1) * self._half_frame / _DISTANCE
        rays = across[None, :, None] * right - across[:, None, None] * up - back
        return self._middle + np.float32(_DISTANCE) * back, _unit(rays.reshape(-1, 3))

    def _first_hits(self, origin: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the point, the unit normal towards the camera, and whether it is the toy or the table, per ray."""
        hits = self._scene.run(np.broadcast_to(origin, rays.shape).copy(), rays, output=1)
        on_toy = hits["primID"] >= 0
        distance = np.where(on_toy, hits["tfar"], -origin[2] / rays[:, 2])
        normal = _unit(np.where(on_toy[:, None], hits["Ng"], np.float32([0, 0, 1])))
        normal *= -np.sign(_dot(normal, rays))[:, None]
        return origin + distance[:, None] * rays + np.float32(_LIFT) * normal, normal, on_toy

    def _lamp(self, point, normal, on_toy, azimuth: float, elevation: float, radius: float) -> np.ndarray:
        """Return the light of a disc-shaped lamp: the cosine of its middle times the share of it that is seen."""
        middle, right, up = _frame(azimuth, elevation)
        disc = np.float32(np.tan(np.radians(radius))) * _DISC
        toward = _unit(middle + disc[:, :1] * right + disc[:, 1:] * up)
        cosine = np.maximum(normal @ middle, 0)
        clear = self._clear(point, toward, cosine > 0)
        return cosine * _smoothed(clear.astype(np.float32), on_toy, 4)

    def _room(self, point, normal, on_toy) -> np.ndarray:
        """Return the diffuse light: cosine-distributed rays that see the room, the table's glow, or the toy."""
        toward = _unit(normal + np.float32(0.99) * _SPHERE)
        clear = self._clear(point, toward, np.ones(len(point), bool))
        return _smoothed(
            np.where(toward[:, 2] > 0, np.float32(1), np.float32(_TABLE_GLOW)) * clear, on_toy, 8
        )

    def _clear(self, point, toward, wanted) -> np.ndarray:
        """Return whether nothing lies between each wanted point and infinity; False where not wanted."""
        gap = self._middle - point
        along = np.maximum(_dot(gap, toward), 0)
        near = _dot(gap, gap) - along**2 < self._reach**2  # the others pass by the toy's bounding sphere
        cast = np.flatnonzero(wanted & near)
        clear = wanted.copy()
        clear[cast] = self._scene.run(point[cast], toward[cast], query="OCCLUDED") < 0
        return clear


def _smoothed(light: np.ndarray, on_toy: np.ndarray, block: int) -> np.ndarray:
    """Average over blocks of samples, the toy's with the toy's and the table's with the table's."""
    toy = on_toy.reshape(SIZE * _SAMPLES, -1).astype(np.float32)
    light = light.reshape(toy.shape)
    whole, part, share = (uniform_filter(a, block, mode="nearest") for a in (light, light * toy, toy))
    inside, outside = part / np.maximum(share, 1e-3), (whole - part) / np.maximum(1 - share, 1e-3)
    return np.where(on_toy, inside.ravel(), outside.ravel())


def _frame(azimuth: float, elevation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the unit vector towards that place in the sky, and to its right and up as seen from the table."""
    a, e = np.radians(azimuth), np.radians(elevation)
    toward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], np.float32)
    right = np.array([-np.sin(a), np.cos(a), 0], np.float32)
    return toward, right, np.cross(toward, right)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt(_dot(vectors, vectors))[:, None]


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", a, b)

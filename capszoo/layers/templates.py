"""Parts drawn as templates: an affine warp of each, laid over each other by their opacity."""

import keras
from keras import ops

from capszoo.layers.arguments import require_counts

# Least magnitude of a pose's determinant: a template is drawn no thinner, so that its pose has an inverse.
LEAST_DETERMINANT = 1e-3


@keras.saving.register_keras_serializable(package="capszoo")
class TemplateRenderer(keras.layers.Layer):
    """A picture made of parts: each part's template under the part's pose, one over the other.

        P <- black
        for j = 1 .. N:  P <- (A_j T_j) * t_j * (A_j alpha_j) + P * (1 - t_j * (A_j alpha_j))      # section 2.1

    where:
      A_j: `poses[B, N, 2, 3]`, an affine map from template to picture. Both have their origin in the middle and the
        unit of half a template's width, so that the identity draws a template at its own size in the middle.
      t_j: `presence[B, N]`, in [0, 1].
      T_j: colours `[N, S, S, C]`, the logistic function of the weight `templates`.
      alpha_j: opacities `[N, S, S, 1]`, the logistic function of the weight `alphas`.
      P: pictures `[B, H, W, C]`, in [0, 1], float32.

    Between their pixels templates are interpolated bilinearly, outside they are transparent.
    Source: Smith et al. 2020, section 2.1. Written with colours times opacity, in which `over` has no division; on an
    opaque black canvas both are the same.
    Differs from the paper: it gives neither unit, initial templates nor what keeps colours in [0, 1].
    """

    def __init__(self, num_parts, image_shape, template_size=12, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_counts(num_parts=num_parts, template_size=template_size)
        self.num_parts = num_parts
        self.image_shape = tuple(image_shape)
        self.template_size = template_size

    def build(self, poses_shape, presence_shape=None):
        # Others would be broadcast.
        self.input_spec = keras.InputSpec(shape=(None, self.num_parts, 2, 3))
        shape = (self.num_parts, self.template_size, self.template_size)
        # White and rather transparent ink with grain: parts that start alike would learn alike.
        self.templates = self.add_weight(
            name="templates",
            shape=(*shape, self.image_shape[-1]),
            initializer=keras.initializers.RandomNormal(1.0, 0.2),
        )
        self.alphas = self.add_weight(
            name="alphas", shape=(*shape, 1), initializer=keras.initializers.RandomNormal(-1.5, 0.2)
        )

    def drawn(self, poses):
        """Colours `[B, N, H, W, C]` and opacities `[B, N, H, W, 1]` of each part by itself, were it present."""
        layers = ops.sigmoid(ops.concatenate([self.templates, self.alphas], axis=-1))
        drawn = warp(layers, poses, self.image_shape[:2])
        return drawn[..., :-1], drawn[..., -1:]

    def call(self, poses, presence):
        colours, alphas = self.drawn(poses)
        return composite(colours, alphas * presence[..., None, None, None])

    def compute_output_shape(self, poses_shape, presence_shape=None):
        return (poses_shape[0], *self.image_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "num_parts": self.num_parts,
            "image_shape": self.image_shape,
            "template_size": self.template_size,
        }


def warp(templates, poses, size):
    """Templates `[N, S, S, C]` under `poses[B, N, 2, 3]` on canvases of `size`: `[B, N, H, W, C]`.

    See `TemplateRenderer` for the units. Each canvas point is taken back to the template by the inverse of its pose;
    a determinant nearer to zero than 0.001 counts as 0.001 of its sign, so that no pose is without one.
    """
    count, side, _, channels = templates.shape
    height, width = size
    x, y = _template_points(poses, size, side)
    # All points outside are equal: on a transparent frame of one pixel.
    x, y = ops.clip(x, 0.0, side + 1.0), ops.clip(y, 0.0, side + 1.0)
    column, row = ops.minimum(ops.floor(x), float(side)), ops.minimum(ops.floor(y), float(side))
    x, y = ops.expand_dims(x - column, -1), ops.expand_dims(y - row, -1)
    # [N, S + 1, S + 1, 4 C]: the four pixels around each cell, side by side, so that one look-up finds them.
    framed = ops.pad(templates, ((0, 0), (1, 1), (1, 1), (0, 0)))
    cells = ops.concatenate(
        [framed[:, :-1, :-1], framed[:, :-1, 1:], framed[:, 1:, :-1], framed[:, 1:, 1:]], axis=-1
    )
    cells = ops.reshape(cells, (count * (side + 1) ** 2, 4 * channels))
    first = ops.arange(count, dtype="int32")[None, :, None] * (side + 1) ** 2
    # Clipped, for what is cast from NaN is no cell; its pixels are NaN all the same.
    places = ops.clip(ops.cast(row * (side + 1) + column, "int32"), 0, (side + 1) ** 2 - 1) + first
    above_left, above_right, below_left, below_right = ops.split(ops.take(cells, places, axis=0), 4, axis=-1)
    above = above_left + x * (above_right - above_left)
    below = below_left + x * (below_right - below_left)
    return ops.reshape(above + y * (below - above), (-1, count, height, width, channels))


def _template_points(poses, size, side):
    """Where each canvas pixel lies on each template, `[B, N, H * W]` twice, in pixels of a frame around it."""
    height, width = size
    unit = side / 2
    across = (ops.arange(width, dtype="float32") - (width - 1) / 2) / unit
    down = (ops.arange(height, dtype="float32") - (height - 1) / 2) / unit
    across, down = (ops.reshape(part, (-1,)) for part in ops.meshgrid(across, down))
    a, b, c, d = (poses[..., i, k, None] for i in (0, 1) for k in (0, 1))
    determinant = a * d - b * c
    determinant = ops.where(
        determinant < 0,
        ops.minimum(determinant, -LEAST_DETERMINANT),
        ops.maximum(determinant, LEAST_DETERMINANT),
    )
    # [B, N, 1] and [H * W] -> [B, N, H * W]
    across, down = across - poses[..., 0, 2, None], down - poses[..., 1, 2, None]
    scale = unit / determinant
    middle = (side + 1) / 2
    return (scale * d) * across - (scale * b) * down + middle, (scale * a) * down - (
        scale * c
    ) * across + middle


def composite(colours, alphas):
    """Pictures laid over each other on black, the last on top: `[B, H, W, C]`.

    where:
      colours: `[B, N, H, W, C]`.
      alphas: their opacities `[B, N, H, W, 1]`, in [0, 1].
    """
    ink = colours * alphas
    picture = ink[:, 0]
    for layer in range(1, colours.shape[1]):
        picture = ink[:, layer] + picture * (1.0 - alphas[:, layer])
    return picture

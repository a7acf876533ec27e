"""Pictures made of parts whose templates compete for each pixel."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.layers.arguments import require_counts
from capszoo.layers.present_set import dense
from capszoo.layers.templates import warp


@keras.saving.register_keras_serializable(package="capszoo")
class TemplateMixture(keras.layers.Layer):
    """The likelihood of a picture under parts: each pixel is of one of them, or of the background.

        p(y_ij) = sum over m of p_m,ij N(y_ij; c_m (x_m T_m)_ij, deviation^2),   m = 0 .. M
        p_m,ij = exp((x_m alpha_m)_ij) d_m / sum over n of exp((x_n alpha_n)_ij) d_n
        c_m = sigmoid(MLP(z_m))

    where:
      y: `images[B, H, W, C]`.
      x_m: `poses[B, M, 2, 3]`, from template to picture. Both have their origin in the middle and the unit of half
        their own extent, so that the identity stretches a template over the picture.
      d_m: presences, given as `logits[B, M]`.
      z_m: `features[B, M, F]`; the MLP has one hidden layer of `hidden` units.
      T_m: `[M, S, S, C]`, the logistic function of the weight `templates`; alpha_m: the weight `alphas[M, S, S, 1]`.
        Between pixels both are interpolated bilinearly, outside both are 0.
      m = 0: the background, with d_0 = 1 and one grey, the logistic function of the weight `background`; alpha_0 is
        softplus of the weight `background_alpha`.
      deviation: of a pixel, in its units.

    Returns `(templates, means, log_likelihood)`: c_m T_m `[B, M, S, S, C]`; the mean of each pixel, in [0, 1]; and
    log p(y) of each; both like images.
    Source: Kosiorek et al. 2019, section 2.2; alphas as logits, the background and the deviation of 1 from the authors'
    code.
    Differs from the paper: there alphas are weights themselves, and a part has none outside its template; with logits
    a present part also says of what it does not reach that it is black.
    Differs from the authors' code: the background begins nearly black, not as any grey.
    """

    def __init__(self, num_parts, image_shape, template_size=11, deviation=1.0, hidden=32, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_counts(num_parts=num_parts, template_size=template_size, hidden=hidden)
        self.num_parts = num_parts
        self.image_shape = tuple(image_shape)
        self.template_size = template_size
        self.deviation = deviation
        self.hidden = hidden
        self.colours = [
            dense(hidden, "colour_hidden", "float32", activation="relu"),
            dense(self.image_shape[-1], "colour", "float32", activation="sigmoid"),
        ]

    def build(self, poses_shape, logits_shape, features_shape, images_shape=None):
        # Others would be broadcast.
        self.input_spec = keras.InputSpec(shape=(None, self.num_parts, 2, 3))
        if images_shape is not None and tuple(images_shape[1:]) != tuple(self.image_shape):
            raise ValueError(f"images must be {list(self.image_shape)}. Received: {list(images_shape[1:])}")
        shape = (self.num_parts, self.template_size, self.template_size)
        self.templates = self.add_weight(
            name="templates", shape=(*shape, self.image_shape[-1]), initializer=UnlikeTemplates()
        )
        self.alphas = self.add_weight(name="alphas", shape=(*shape, 1), initializer="zeros")
        # Dark: before a grey one is dark, templates have learnt to be, and they stay so.
        self.background = self.add_weight(
            name="background", shape=(), initializer=keras.initializers.Constant(-4.0)
        )
        self.background_alpha = self.add_weight(name="background_alpha", shape=(), initializer="zeros")
        for layer, width in zip(self.colours, (features_shape[-1], self.hidden), strict=True):
            layer.build((*features_shape[:-1], width))

    def call(self, poses, logits, features, images):
        colours = features
        for layer in self.colours:
            colours = layer(colours)
        # [B, M, C] -> [B, M, 1, 1, C]
        colours = colours[:, :, None, None]
        templates = ops.sigmoid(self.templates)
        drawn = warp(
            ops.concatenate([templates, ops.convert_to_tensor(self.alphas)], axis=-1),
            self._in_pixels(poses),
            self.image_shape[:2],
        )
        presence = ops.log_sigmoid(logits)[..., None, None, None]
        means, weights = drawn[..., :-1] * colours, drawn[..., -1:] + presence
        # [B, 1 + M, H, W, C] and [B, 1 + M, H, W, 1], the background first
        grey, alpha = ops.sigmoid(self.background), ops.softplus(self.background_alpha)
        means = ops.concatenate([grey * ops.ones_like(means[:, :1]), means], axis=1)
        weights = ops.concatenate([alpha * ops.ones_like(weights[:, :1]), weights], axis=1)
        shares = ops.log_softmax(weights, axis=1)
        deviations = (ops.expand_dims(images, 1) - means) / self.deviation
        constant = math.log(self.deviation * math.sqrt(2.0 * math.pi))
        likelihood = ops.logsumexp(shares - 0.5 * ops.square(deviations), axis=1) - constant
        return templates * colours, ops.sum(ops.exp(shares) * means, axis=1), likelihood

    def _in_pixels(self, poses):
        """Poses in the unit of `warp`, half a template's width, on either side."""
        height, width = self.image_shape[:2]
        side = self.template_size
        extent = np.array([[width - 1.0], [height - 1.0]], "float32")
        of_template = np.array([max(side - 1.0, 1.0), max(side - 1.0, 1.0), side], "float32")
        return poses * ops.convert_to_tensor(extent / of_template)

    def get_config(self):
        return {
            **super().get_config(),
            "num_parts": self.num_parts,
            "image_shape": self.image_shape,
            "template_size": self.template_size,
            "deviation": self.deviation,
            "hidden": self.hidden,
        }


@keras.saving.register_keras_serializable(package="capszoo")
class UnlikeTemplates(keras.initializers.Initializer):
    """Orthogonal templates `[M, S, S, C]`, as far as there are so many, brought to [0, 1].

    Source: authors' code of Kosiorek et al. 2019.
    """

    def __call__(self, shape, dtype=None):
        flat = keras.initializers.Orthogonal()((shape[0], math.prod(shape[1:])), dtype=dtype)
        lowest, highest = ops.min(flat), ops.max(flat)
        # A single number has no range.
        return ops.reshape((flat - lowest) / ops.maximum(highest - lowest, keras.config.epsilon()), shape)

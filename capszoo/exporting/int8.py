"""LiteRT files with int8 weights outside of routing."""

import contextlib
import io
import re

import keras

from capszoo.extras import extra
from capszoo.layers.routes import Routes

# Of LiteRT, those that convolutions and dense layers become.
OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def write_int8(source, target, model):
    """Writes the .tflite file `source` of `model` once more, with int8 weights in the layers that do not route.

        w ~ s_c q,   q in -127 .. 127,   s_c = max |w| of channel c / 127

    The weights of convolutions and dense layers are stored so, and multiplied with inputs that are rounded to int8 as
    they come, each image in its own range. All that a layer with a routing computes, votes too, stays in float32,
    inside of other layers and models too: differences of votes are small beside votes, and variances of them smaller.

    Errors: `MissingExtra`.
    """
    with extra("export"):
        from ai_edge_quantizer.qtyping import TFLOperationName
        from ai_edge_quantizer.quantizer import Quantizer

    layers = [re.escape(layer.name) for layer in _without_routing(model)]
    quantizer = Quantizer(str(source))
    for operator in OPERATORS:
        # Operators are named by the layers that they come from, with numbers behind: "functional_1/conv1_1/Relu".
        quantizer.add_dynamic_config(
            regex=rf"/({'|'.join(layers)})(_\d+)?/",
            operation_name=TFLOperationName(operator),
            num_bits=8,
        )
    # It prints how much was saved, and draws bars.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        target.write_bytes(quantizer.quantize().quantized_model)


def _without_routing(layer):
    """The largest layers at or inside `layer` in which nothing routes."""
    if isinstance(layer, Routes):
        return []
    if isinstance(layer, keras.Model):
        parts = layer.layers
    elif any(isinstance(part, Routes) for part in layer._flatten_layers()):
        parts = layer._flatten_layers(include_self=False, recursive=False)
    else:
        return [layer]
    return [found for part in parts for found in _without_routing(part)]

"""SavedModels with the signatures of the zoo, and the requests that warm a server up."""

import itertools

import keras
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from capszoo.data.checking import TOLERANCE
from capszoo.data.images import LUMA
from capszoo.exporting.chunks import in_chunks
from capszoo.exporting.picture_size import within_limit
from capszoo.models.architecture import Architecture
from capszoo.models.network import ImageModel
from capszoo.routing.cpu import host_calls
from capszoo.routing.tracing import for_processors

# The sizes a batching server pads to, and so the only ones a warmed-up server meets. The deployment kit's
# batching_parameters.txt lists the same.
BATCH_SIZES = (1, 2, 4, 8, 16, 32)

BATCHING_PARAMETERS = """\
max_batch_size { value: 2048 }
enable_large_batch_splitting { value: true }
max_execution_batch_size { value: 32 }
batch_timeout_micros { value: 1000 }
max_enqueued_batches { value: 64 }
""" + "".join(f"allowed_batch_sizes: {size}\n" for size in BATCH_SIZES)


class Signatures:
    """The functions that a bundle offers.

        serving_default   images      -> scores, poses, or what else the model's architecture serves
        predict_bytes     image_bytes -> the same
        features          images      -> every named stage

    where:
      images: float32 `[B, H, W, C]` in [0, 1], any B from 1; `preprocess` is inside.
      image_bytes: B strings, each a PNG or JPEG, a stereo pair in one; see `decoded`.
      stages: names of layers whose outputs are the features; one with several outputs gives `<stage>_<part>`. A layer
        of a model in the model is `<inner>/<layer>`, and its feature `<inner>_<layer>`.

    Only the weights that these outputs need are written: a decoder stays behind.
    Errors when served: `InvalidArgumentError` for no image, for images of another shape, for values outside
    [0, 1] or NaN, and for bytes that are no picture. A server that merges requests fails the whole batch.
    """

    def __init__(self, model, preprocess, image_shape, stages):
        self.preprocess = preprocess
        self.image_shape = tuple(image_shape)
        self.predictor = keras.Model(model.input, {key: model.output[key] for key in served(model)})
        self.observer = keras.Model(model.input, _stage_outputs(model, stages))

    def predict(self, images):
        """What the model serves, without checks: what LiteRT gets, whose interpreter has none to offer."""
        return _float32(self.predictor(self.preprocess(images), training=False))

    def serving_default(self, images):
        """What the model serves of raw images."""
        return in_chunks(self.predict, checked(images, self.image_shape), _shapes(self.predictor))

    def predict_bytes(self, image_bytes):
        """What the model serves of encoded pictures."""
        return in_chunks(self.predict, decoded(image_bytes, self.image_shape), _shapes(self.predictor))

    def features(self, images):
        """Outputs of every named stage, of raw images."""
        return in_chunks(self._observe, checked(images, self.image_shape), _shapes(self.observer))

    def _observe(self, images):
        return _float32(self.observer(self.preprocess(images), training=False))

    def write(self, path):
        """Writes the SavedModel with all signatures."""
        images = [tf.TensorSpec((None, *self.image_shape), tf.float32, name="images")]
        image_bytes = [tf.TensorSpec((None,), tf.string, name="image_bytes")]
        archive = keras.export.ExportArchive()
        with host_calls(False), for_processors():
            archive.add_endpoint("serving_default", self.serving_default, images)
            archive.add_endpoint("predict_bytes", self.predict_bytes, image_bytes)
            archive.add_endpoint("features", self.features, images)
            archive.write_out(str(path), verbose=False)

    def write_unchecked(self, path):
        """Writes a SavedModel of `predict` alone, for the converter."""
        images = [tf.TensorSpec((None, *self.image_shape), tf.float32, name="images")]
        archive = keras.export.ExportArchive()
        with host_calls(False), for_processors():
            archive.add_endpoint("serving_default", self.predict, images)
            archive.write_out(str(path), verbose=False)


def served(model):
    """Names of the outputs that a bundle of `model` returns: its architecture's, by default scores and poses."""
    known = isinstance(model, ImageModel) and model.architecture is not None
    return model.architecture.served if known else Architecture.served


def checked(images, image_shape):
    """`images`, unless their shape or values are not what the signature promises.

    Errors: `InvalidArgumentError`, naming what was expected and what was received.
    """
    # A server feeds what it is sent, of whatever shape; some would pass the reshapes as another batch.
    images = _not_empty(tf.ensure_shape(images, (None, *image_shape)))
    received = [tf.reduce_min(images), "to", tf.reduce_max(images)]
    # NaN is neither above nor below.
    valid = tf.reduce_all((images >= -TOLERANCE) & (images <= 1.0 + TOLERANCE))
    tf.debugging.Assert(valid, ["images must be numbers in [0, 1], none of them NaN. Received:", *received])
    return images


def decoded(image_bytes, image_shape):
    """Pictures `[B, H, W, C]` in [0, 1] of B encoded strings: PNG or JPEG, 8 or 16 bits, grey or colour.

    where:
      image_shape: `(H, W, C)`. C = 1 is grey (colour becomes ITU-R 601 luma), 3 is colour (grey becomes three
        equal channels), 2 is a stereo pair, given as one grey picture with the left camera's view in its left
        half.

    A picture of another size is scaled to `H x W` (bilinear, anti-aliased), whatever its aspect ratio; the views of a
    stereo pair each by itself, and only of a picture with the aspect ratio of two views. Transparency shows black
    beneath; the orientation in EXIF is not looked at.
    Errors: `InvalidArgumentError` for bytes that are not a whole PNG or JPEG, for more pixels than `MAX_PIXELS` of
    `capszoo.data.images`, known before anything is decoded, and for a picture that is not that of two views.
    """
    height, width, channels = image_shape
    views = 2 if channels == 2 else 1

    def picture(contents):
        pixels = tf.io.decode_image(within_limit(contents), dtype=tf.float32, expand_animations=False)
        pixels = _opaque(pixels)
        if channels != 3:
            pixels = tf.reduce_sum(pixels * LUMA, axis=-1, keepdims=True)
        if views == 2:
            pixels = _side_by_side(pixels, height, width)
        pixels = tf.image.resize(pixels, (height, width), antialias=True)
        # The kernel's weights sum to one only up to rounding.
        return tf.ensure_shape(tf.clip_by_value(pixels, 0.0, 1.0), image_shape)

    # Decoders run on CPUs only.
    with tf.device("CPU:0"):
        return tf.map_fn(
            picture,
            _not_empty(image_bytes),
            # One picture at the limit takes some 400 MB while it is scaled.
            parallel_iterations=2,
            fn_output_signature=tf.TensorSpec(image_shape, tf.float32),
        )


def _not_empty(batch):
    some = tf.debugging.assert_positive(tf.shape(batch)[0], "a batch of at least one image is needed")
    # Else an operation that an empty batch breaks could be the first to raise its error.
    with tf.control_dependencies([some]):
        return tf.identity(batch)


def _side_by_side(pixels, height, width):
    """The two views in a grey picture `[h, 2 w, 1]` as channels: `[h, w, 2]`."""
    rows, columns = tf.shape(pixels)[0], tf.shape(pixels)[1]
    # One view alone, taken for two, would be cut in half and stretched.
    two_views = (columns % 2 == 0) & (columns * height == rows * 2 * width)
    expected = (
        f"expected two views of the aspect ratio {height}x{width} (height x width) side by side. Received:"
    )
    with tf.control_dependencies([tf.debugging.Assert(two_views, [expected, rows, "x", columns])]):
        # [h, 2 w, 1] -> [h, 2, w] -> [h, w, 2]
        return tf.transpose(tf.reshape(pixels, (rows, 2, -1)), (0, 2, 1))


def _opaque(pixels):
    """Colours `[h, w, 3]` over black of grey, grey + alpha, RGB or RGBA pixels `[h, w, 1..4]`."""
    shape = tf.shape(pixels)
    colours = shape[2] - tf.cast(shape[2] % 2 == 0, tf.int32)
    alpha = tf.where(shape[2] % 2 == 0, pixels[..., -1:], 1.0)
    return tf.broadcast_to(pixels[..., :colours] * alpha, (shape[0], shape[1], 3))


def write_warmup(path, name, image_shape):
    """Writes one request per signature and batch size, which a server replays before it takes traffic.

    A TFRecord file of `PredictionLog`; the pictures are plain grey, and a request is a few kilobytes at most.
    """
    height, width, channels = image_shape
    shape = (height, 2 * width if channels == 2 else width, 3 if channels == 3 else 1)
    grey = tf.fill(shape, tf.constant(128, tf.uint8))
    picture = tf.io.encode_png(grey).numpy()
    with tf.io.TFRecordWriter(str(path)) as records:
        for size in BATCH_SIZES:
            # One value stands for all elements of the tensor.
            images = tf.compat.v1.make_tensor_proto(0.5, tf.float32, (size, *image_shape))
            image_bytes = tf.compat.v1.make_tensor_proto([picture] * size, tf.string)
            records.write(_request(name, "serving_default", images=images))
            records.write(_request(name, "features", images=images))
            records.write(_request(name, "predict_bytes", image_bytes=image_bytes))


def _request(name, signature, **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for key, tensor in inputs.items():
        request.inputs[key].CopyFrom(tensor)
    log = prediction_log_pb2.PredictLog(request=request)
    return prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString()


def _stage_outputs(model, stages):
    """The named layers' outputs, by stage, or by `<stage>_<part>` where a layer has several."""
    outputs = {}
    for stage in stages:
        for path, tensor in keras.tree.flatten_with_path(_output_of(stage, model)):
            outputs["_".join(map(str, (*stage.split("/"), *path)))] = tensor
    return outputs


def _output_of(stage, model):
    """What a layer returns in the graph of `model`; `<inner>/<layer>` is a layer of a model in it."""
    name, _, below = stage.partition("/")
    layer = model.get_layer(name)
    if not isinstance(layer, keras.Model):
        return layer.output
    # A model's own `input` and `output` are of the graph inside.
    nodes = itertools.chain(*model._nodes_by_depth.values())
    node = next(node for node in nodes if node.operation is layer)
    inside = _output_of(below, layer) if below else layer.output
    return keras.Model(layer.input, inside)(node.input_tensors[0])


def stage_names(model):
    """What the stages of `model` may be: its layers, and `<inner>/<layer>` of models in it."""
    names = []
    for layer in model.layers:
        names.append(layer.name)
        if isinstance(layer, keras.Model):
            names += [f"{layer.name}/{name}" for name in stage_names(layer)]
    return names


def _shapes(model):
    return {name: tensor.shape for name, tensor in model.output.items()}


def _float32(outputs):
    return {key: tf.cast(tensor, tf.float32) for key, tensor in outputs.items()}

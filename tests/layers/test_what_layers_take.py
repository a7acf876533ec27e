"""What a layer cannot make sense of is refused in words, before images are mixed with each other."""

import keras
import numpy as np
import pytest

from capszoo.layers import (
    AttentionPooling,
    ConcurrentCapsules,
    ConvCapsules,
    CoordinateChannels,
    Decoder,
    DenseCapsules,
    DepthwisePrimaryCapsules,
    GaussianCapsules,
    HeinsenCapsules,
    InducedSetAttention,
    MaskCapsules,
    MatrixPrimaryCapsules,
    MostActive,
    NormalisedClassCapsules,
    NormalisedConvCapsules,
    ObjectVotes,
    PartsFromObjects,
    Patches,
    PresentSeedPooling,
    PrimaryCapsules,
    SeedPooling,
    SelfRoutedClassCapsules,
    SeparateDense,
    SharedClassCapsules,
    SparseMask,
    TemplateMixture,
    TemplateRenderer,
    TopDownCapsules,
)
from capszoo.routing import (
    AttentionRouting,
    DynamicRouting,
    EMRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
    KernelRouting,
    SelfAttentionRouting,
    SelfRouting,
    UniformRouting,
    VariationalBayesRouting,
)


@pytest.mark.parametrize(
    "routing", [EMRouting, VariationalBayesRouting, SelfRouting], ids=lambda routing: routing.__name__
)
@pytest.mark.parametrize("shape", [(3, 4, 1), (4, 3), (3,)])
def test_activations_of_another_shape_than_the_votes_are_refused(routing, shape):
    votes = np.ones((3, 4, 2, 1 if routing is SelfRouting else 16), "float32")
    with pytest.raises(ValueError, match=r"activations must have the shape \(3, 4\)\. Received: "):
        routing()(votes, np.ones(shape, "float32"))


MATRIX_LAYERS = [
    lambda: ConvCapsules(2, 2, 1, EMRouting()),
    lambda: SharedClassCapsules(3, EMRouting()),
    lambda: NormalisedClassCapsules(3, EMRouting()),
]


@pytest.mark.parametrize("layer", MATRIX_LAYERS, ids=["conv", "classes", "normalised"])
@pytest.mark.parametrize(
    ("poses", "activations"),
    [
        ((2, 3, 3, 2, 8), (2, 3, 3, 2)),
        ((2, 3, 3, 2, 32), (2, 3, 3, 2)),
        ((2, 3, 3, 2, 5, 5), (2, 3, 3, 2)),
        ((2, 3, 3, 2, 4, 4), (2, 3, 3, 1)),
        ((2, 3, 3, 2, 4, 4), (2, 3, 3, 2, 1)),
    ],
)
def test_poses_and_activations_that_are_not_of_one_grid_are_refused(layer, poses, activations):
    with pytest.raises(ValueError, match=r"poses .* of 16 numbers each and activations"):
        layer()((np.ones(poses, "float32"), np.ones(activations, "float32")))


@pytest.mark.parametrize("layer", MATRIX_LAYERS, ids=["conv", "classes", "normalised"])
def test_a_grid_that_is_not_known_is_refused(layer):
    children = keras.Input((None, None, 2, 4, 4)), keras.Input((None, None, 2))
    with pytest.raises(ValueError, match="the children must have a static shape"):
        layer()(children)


@pytest.mark.parametrize("selection", [(10, 10), (10, 1, 9), (10, 1, 1, 10)])
def test_a_selection_of_other_capsules_is_refused(selection):
    with pytest.raises(ValueError, match=r"the selection must be \[B, N, 10\]\. Received shape: "):
        MaskCapsules()(np.ones((10, 10, 4), "float32"), np.ones(selection, "float32"))


def test_a_selection_may_be_of_whole_numbers():
    poses, selection = np.ones((2, 3, 4), "float32"), np.eye(3, dtype="int32")[[0, 2]][:, None]
    expected = np.repeat(selection, 4, axis=-1)
    np.testing.assert_array_equal(MaskCapsules()(poses, selection), expected)


def test_features_that_are_no_capsules_of_that_size_are_refused():
    layer = DepthwisePrimaryCapsules(types=2, pose_dim=4, kernel_size=3)
    with pytest.raises(ValueError, match=r"8 channels are needed, 2 types of 4 numbers\. .*\(1, 5, 5, 7\)"):
        layer(np.zeros((1, 5, 5, 7), "float32"))


@pytest.mark.parametrize(
    "layer", [PrimaryCapsules(2, 4, 9), DepthwisePrimaryCapsules(1, 3, 9)], ids=["full", "depthwise"]
)
def test_images_smaller_than_a_window_are_refused_eagerly_too(layer):
    with pytest.raises(ValueError, match="9"):
        layer(np.zeros((1, 5, 5, 3), "float32"))


def test_coordinates_stand_beside_grey_levels():
    """Of whole numbers from 0 to 255 there is none for the left and the upper half."""
    channels = CoordinateChannels()(np.full((1, 2, 3, 1), 200, "uint8"))
    np.testing.assert_array_equal(channels[0, :, :, 0], np.full((2, 3), 200))
    np.testing.assert_array_equal(channels[0, 0, :, 2], [-1, 0, 1])


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (lambda routing: HeinsenCapsules(3, routing), "a HeinsenRouting"),
        (lambda routing: SelfRoutedClassCapsules(3, routing), "a SelfRouting"),
        (TopDownCapsules, "an AttentionRouting"),
    ],
)
def test_layers_that_are_made_for_one_routing_take_no_other(layer, name):
    with pytest.raises(ValueError, match=f"must be {name}. Received: DynamicRouting"):
        layer(DynamicRouting())


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "2", (3, 3), None])
@pytest.mark.parametrize(
    ("layer", "counts"),
    [
        (AttentionPooling, {"num_capsules": 2, "num_values": 3}),
        (ConvCapsules, {"types": 2, "kernel_size": 3, "strides": 1, "routing": EMRouting()}),
        (DenseCapsules, {"num_capsules": 2, "pose_dim": 4, "routing": DynamicRouting()}),
        (DepthwisePrimaryCapsules, {"types": 2, "pose_dim": 4, "kernel_size": 3, "strides": 1}),
        (GaussianCapsules, {"num_capsules": 2, "pose_dim": 4}),
        (HeinsenCapsules, {"types": 2, "routing": HeinsenRouting()}),
        (InducedSetAttention, {"units": 4, "heads": 1, "points": 2}),
        (MatrixPrimaryCapsules, {"types": 2}),
        (MostActive, {"count": 1}),
        (ObjectVotes, {"num_parts": 2}),
        (PartsFromObjects, {"num_objects": 2, "num_parts": 2}),
        (Patches, {"size": 2}),
        (PresentSeedPooling, {"seeds": 1, "units": 4}),
        (PrimaryCapsules, {"types": 2, "pose_dim": 4, "kernel_size": 3, "strides": 1}),
        (SeedPooling, {"seeds": 1, "units": 4, "heads": 1}),
        (SelfRoutedClassCapsules, {"num_capsules": 2, "routing": SelfRouting()}),
        (SeparateDense, {"units": 2}),
        (SparseMask, {"boost_every": 1}),
        (TemplateMixture, {"num_parts": 2, "template_size": 3, "hidden": 2, "image_shape": (8, 8, 1)}),
        (TemplateRenderer, {"num_parts": 2, "template_size": 3, "image_shape": (8, 8, 1)}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_counts_are_integers_of_at_least_one(layer, counts, count):
    layer(**counts)
    for name in [name for name, value in counts.items() if isinstance(value, int)]:
        with pytest.raises(ValueError, match=rf"{name} must be (at least 1|an integer)\. Received: "):
            layer(**{**counts, name: count})


@pytest.mark.parametrize(
    ("types", "windows", "classes"),
    [((0,), ((3, 1),), 2), ((2,), ((0, 1),), 2), ((2,), ((3, 0),), 2), ((2,), ((3, 1),), 0)],
)
def test_counts_of_concurrent_layers_are_at_least_one(types, windows, classes):
    with pytest.raises(ValueError, match=r" must be at least 1\. Received: 0"):
        ConcurrentCapsules(types, windows, classes, InvertedAttentionRouting())


@pytest.mark.parametrize("routing", ["dynamic", None, DynamicRouting, {"num_iterations": 3}])
@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (lambda routing: ConvCapsules(2, 3, 1, routing), "a Routing"),
        (lambda routing: DenseCapsules(2, 4, routing), "a Routing"),
        (lambda routing: SharedClassCapsules(2, routing), "a Routing"),
        (lambda routing: ConcurrentCapsules((2,), ((3, 1),), 2, routing), "an InvertedAttentionRouting"),
        (lambda routing: HeinsenCapsules(2, routing), "a HeinsenRouting"),
        (lambda routing: SelfRoutedClassCapsules(2, routing), "a SelfRouting"),
    ],
    ids=["conv", "dense", "classes", "concurrent", "heinsen", "self"],
)
def test_what_is_no_routing_is_refused(layer, kind, routing):
    with pytest.raises(ValueError, match=f"the routing must be {kind}. Received: {type(routing).__name__}"):
        layer(routing)


@pytest.mark.parametrize(
    ("routing", "layer", "shapes"),
    [
        (DynamicRouting, lambda routing: DenseCapsules(2, 4, routing), (6, 4)),
        (EMRouting, lambda routing: SharedClassCapsules(2, routing), ((5, 5, 3, 4, 4), (5, 5, 3))),
        (HeinsenRouting, lambda routing: HeinsenCapsules(2, routing), ((6, 4, 4), (6,))),
        (SelfRouting, lambda routing: SelfRoutedClassCapsules(2, routing), ((5, 5, 3, 4), (5, 5, 3))),
        (
            InvertedAttentionRouting,
            lambda routing: ConcurrentCapsules((2,), ((3, 1),), 2, routing),
            (5, 5, 3, 4, 4),
        ),
    ],
    ids=["dense", "classes", "heinsen", "self", "concurrent"],
)
def test_a_routing_of_another_layer_is_refused(routing, layer, shapes):
    routing = routing()
    children = keras.tree.map_shape_structure(keras.Input, shapes)
    layer(routing)(children)
    with pytest.raises(ValueError, match="a routing belongs to one layer"):
        layer(routing)(children)


@pytest.mark.parametrize(
    "routing",
    [
        AttentionRouting,
        DynamicRouting,
        EMRouting,
        HeinsenRouting,
        KernelRouting,
        SelfAttentionRouting,
        SelfRouting,
        UniformRouting,
        VariationalBayesRouting,
    ],
    ids=lambda kind: kind.__name__,
)
def test_votes_for_other_parents_than_weights_were_made_for_are_refused(routing):
    """Weights of six parents, broadcast to one, would make six images of each."""
    routing, activations = routing(), np.ones((2, 5), "float32")
    routing(np.ones((2, 5, 6, 16), "float32"), activations)
    with pytest.raises(ValueError, match=r"has been built for 6 parents\. Received: votes for 1"):
        routing(np.ones((2, 5, 1, 16), "float32"), activations)


def test_a_routing_without_weights_is_of_any_number_of_parents():
    activations = np.ones((2, 5), "float32")
    for routing in (EMRouting(activation="mixing"), DynamicRouting(use_bias=False)):
        for parents in (6, 1):
            assert routing(np.ones((2, 5, parents, 16), "float32"), activations)[0].shape == (2, parents, 16)


POSES, ACTIVATIONS = (4, 3, 3, 2), (4, 3, 3, 2)


@pytest.mark.parametrize(
    ("layer", "inputs", "message"),
    [
        (
            lambda: SelfRoutedClassCapsules(5, SelfRouting()),
            [[(*POSES, 4, 4), ACTIVATIONS]],
            "each child has one activation and a pose of one axis",
        ),
        (
            lambda: HeinsenCapsules(5, HeinsenRouting()),
            [[(*POSES, 16), ACTIVATIONS]],
            "each child has one activation and a pose of two axes",
        ),
        (MaskCapsules, [(4, 4, 4, 4), (4, 1, 4)], r"poses must be \[B, O, D\]"),
    ],
)
def test_poses_of_another_rank_are_refused_where_sizes_would_fit(layer, inputs, message):
    inputs = keras.tree.map_shape_structure(lambda shape: np.ones(shape, "float32"), inputs)
    with pytest.raises(ValueError, match=message):
        layer()(*inputs)


@pytest.mark.parametrize(
    ("layer", "inputs", "message"),
    [
        (lambda: Decoder((8, 8, 1)), [(None, 16)], r"masked capsules must be \[B, N, F\]"),
        (MostActive, [(None,)], r"activations must be \[B, O\]"),
        (MaskCapsules, [(None, 16), (1, 10)], r"poses must be \[B, O, D\]"),
        (MaskCapsules, [(10, 16), (None, 10)], r"the selection must be \[B, N, 10\]"),
        (lambda: AttentionPooling(3, 4), [(None, None, 16)], r"features must be \[B, H, W, F\]"),
        (lambda: Patches(4), [(None, 8, 1)], r"images must be \[B, H, W, C\]"),
    ],
)
def test_unknown_sizes_that_a_layer_needs_are_refused_in_its_words(layer, inputs, message):
    with pytest.raises(ValueError, match=message + ".*; only B may be unknown"):
        layer()(*map(keras.Input, inputs))


def test_levels_on_a_grid_of_unknown_size_are_refused():
    layer = ConcurrentCapsules([2], [(3, 1)], 3, InvertedAttentionRouting(1))
    with pytest.raises(ValueError, match="the children must have a static shape"):
        layer(keras.Input((None, None, 2, 4, 4)))


@pytest.mark.parametrize(
    "create",
    [
        lambda: NormalisedConvCapsules(2, 3, 2, KernelRouting(2)),
        lambda: NormalisedClassCapsules(2, KernelRouting(2)),
    ],
)
def test_a_layer_is_built_inside_another_before_anything_random_was_drawn(create):
    keras.utils.clear_session()

    class Holds(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.layer = create()

        def call(self, inputs):
            return self.layer(inputs)

    _, activations = Holds()((np.ones((2, 5, 6, 3, 4, 4), "float32"), np.ones((2, 5, 6, 3), "float32")))
    assert activations.shape[-1] == 2
    keras.random.normal((2,))


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (lambda: TemplateRenderer(1, (7, 8, 1), 4), [(1, 3, 2, 3), (1, 3)]),
        (lambda: TemplateMixture(3, (7, 8, 1), 4, hidden=3), [(2, 1, 2, 3), (2, 1), (2, 1, 5), (2, 7, 8, 1)]),
        (lambda: TemplateMixture(3, (7, 8, 2), 4, hidden=3), [(2, 3, 2, 3), (2, 3), (2, 3, 5), (2, 7, 8, 1)]),
        (lambda: PartsFromObjects(2, 4), [(3, 1, 2, 3), (3, 1), (3, 4, 2, 3), (3, 4)]),
    ],
)
def test_poses_and_images_that_would_be_broadcast_are_refused(layer, shapes):
    with pytest.raises(ValueError, match=r"expected shape|images must be"):
        layer()(*(np.ones(shape, "float32") for shape in shapes))


def test_another_grid_would_be_pooled_with_the_same_places():
    layer = AttentionPooling(2, 3)
    layer(np.ones((2, 4, 5, 6), "float32"))
    with pytest.raises(ValueError, match="expected shape"):
        layer(np.ones((2, 1, 5, 6), "float32"))

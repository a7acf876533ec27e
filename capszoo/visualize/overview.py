"""Everything that can be drawn of a model's capsules, for pictures at hand."""

from capszoo.layers.routes import routed_layers
from capszoo.models.architecture import (
    Architecture,
    BoundsLikelihood,
    Classifies,
    ComposesTemplates,
    DecodesPoses,
    MasksByRank,
    ParsesParts,
    Reconstructs,
    architecture_of,
)
from capszoo.visualize import templates
from capszoo.visualize.activity import activation_maps, draw_activation_maps
from capszoo.visualize.decoding import (
    draw_perturbations,
    draw_reconstructions,
    perturbations,
    reconstructions,
)
from capszoo.visualize.parse import draw_parse, draw_samples
from capszoo.visualize.routing import coefficients, draw_coefficients
from capszoo.visualize.sparsity import capsule_reconstructions, draw_capsule_reconstructions
from capszoo.visualize.templates import draw_arrangements, draw_pictures, draw_templates
from capszoo.visualize.votes import draw_vote_distances, vote_distances


def overview(model, images, class_names=None):
    """Yields `(name, figure)` of every drawing that the roles of the model's architecture and its layers allow.

        parse                                     `ParsesParts`
        samples                                   `BoundsLikelihood`
        arrangements, templates, objects, samples `ComposesTemplates`
        reconstructions                           `Reconstructs`
        perturbations                             `DecodesPoses`; of the first image
        capsule_reconstructions                   `MasksByRank`; of the first image
        activations_<layer>                       of every grid of capsules that are routed
        coefficients_<layer>, votes_<layer>       of every routing; votes of the first image

    where:
      images: `[B, H, W, C]`, as the model takes them.
      class_names: a name per class; None numbers them.

    Errors: `ValueError` for images of another shape than the model's, and for a model that no architecture has built.
    """
    architecture = architecture_of(model, Architecture, "an overview")
    if architecture.has(ParsesParts):
        yield "parse", draw_parse(model, images)
    if architecture.has(BoundsLikelihood):
        yield "samples", draw_samples(model)
    if architecture.has(ComposesTemplates):
        yield "arrangements", draw_arrangements(images, templates.arrangements(model, images))
        yield "templates", draw_templates(templates.templates(model))
        yield "objects", draw_pictures(templates.objects(model))
        yield "samples", draw_pictures(templates.samples(model, 16))
    if architecture.has(Reconstructs):
        decoded = reconstructions(model, images)
        yield "reconstructions", draw_reconstructions(images, decoded)
    if architecture.has(DecodesPoses):
        yield "perturbations", draw_perturbations(perturbations(model, images[:1]))
    if architecture.has(MasksByRank):
        alone, without = capsule_reconstructions(model, images[:1])
        figure = draw_capsule_reconstructions(images[0], decoded[0], alone[0], without[0])
        yield "capsule_reconstructions", figure
    routed = routed_layers(model)
    for layer, maps in activation_maps(model, images).items() if routed else ():
        yield f"activations_{layer}", draw_activation_maps(maps)
    for layer in routed:
        names = class_names if architecture.has(Classifies) and layer is routed[-1] else None
        shares = coefficients(model, images, layer=layer.name)
        yield f"coefficients_{layer.name}", draw_coefficients(shares, _types(layer.input), names)
        distances = vote_distances(model, images[:1], layer.name)
        yield f"votes_{layer.name}", draw_vote_distances(*distances, names)


def _types(children):
    """How many types there are in children: poses and activations `[B, H, W, types]`, or `[B, H, W, types, D]`."""
    return children[1].shape[-1] if isinstance(children, list | tuple) else children.shape[-2]

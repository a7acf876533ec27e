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
from capszoo.visualize.activity import activation_maps, capsules_on_grids, draw_activation_maps
from capszoo.visualize.common import checked
from capszoo.visualize.decoding import (
    draw_perturbations,
    draw_reconstructions,
    perturbations,
    reconstructions,
)
from capszoo.visualize.over_image import (
    child_centres,
    coefficient_maps,
    draw_over_image,
    sees_whole_grid,
    vote_distance_maps,
)
from capszoo.visualize.page import Drawing
from capszoo.visualize.parse import draw_parse, draw_samples
from capszoo.visualize.routing import coefficients, draw_coefficients
from capszoo.visualize.sparsity import capsule_reconstructions, draw_capsule_reconstructions
from capszoo.visualize.templates import draw_arrangements, draw_pictures, draw_templates
from capszoo.visualize.votes import draw_vote_distances, vote_distances


def overview(model, images, class_names=None):
    """Yields a `Drawing` of everything that the roles of the model's architecture and its layers allow.

        parse                                     `ParsesParts`
        samples                                   `BoundsLikelihood`
        arrangements, templates, objects, samples `ComposesTemplates`
        reconstructions                           `Reconstructs`
        perturbations                             `DecodesPoses`; of the first image
        capsule_reconstructions                   `MasksByRank`; of the first image
        activations_<layer>                       of every grid of capsules that are routed
        coefficients_<layer>, votes_<layer>       of every routing; of the first image; votes of parents with poses
        coefficients_over_image_<layer>, votes_over_image_<layer>
                                                  where each parent sees a whole grid; of the first image

    where:
      images: `[B, H, W, C]`, as the model takes them; uint8 are grey levels.
      class_names: a name per class; None numbers them.

    Errors: `ValueError` for images of another shape than the model's, and for a model that no architecture has built.
    """
    architecture, images = architecture_of(model, Architecture, "an overview"), checked(model, images)
    yield from _generated(model, images, architecture)
    yield from _decoded(model, images, architecture)
    routed = routed_layers(model)
    for layer, maps in activation_maps(model, images).items() if capsules_on_grids(model) else ():
        yield Drawing(
            f"activations_{layer}",
            f"Where the capsules of {layer} are active",
            "A row for each image and a panel for each type of capsule: white where a capsule is sure that its "
            "entity is there. Compare with the image: types that follow its strokes or edges have found parts.",
            draw_activation_maps(maps),
        )
    for layer in routed:
        names = class_names if architecture.has(Classifies) and layer is routed[-1] else None
        yield from _routed(model, images[:1], layer, names)


def _generated(model, images, architecture):
    """What a generative model makes of images, and what it makes up."""
    if architecture.has(ParsesParts):
        yield Drawing(
            "parse",
            "Which object each part of an image belongs to",
            "Below each image its reconstruction, and its patches in the colour of their most probable parent. The "
            "paler a patch, the less probable that parent is.",
            draw_parse(model, images),
        )
    if architecture.has(BoundsLikelihood):
        yield Drawing(
            "samples",
            "Images that the model generates",
            "Each is drawn from the prior, without noise. They show what the model believes images to be like, and "
            "resemble no image in particular.",
            draw_samples(model),
        )
    if architecture.has(ComposesTemplates):
        yield Drawing(
            "arrangements",
            "How objects arrange their parts",
            "Above the image, below what the parts draw where they were inferred, each part in a hue of its own. "
            "The same hue in two images is the same part in another pose.",
            draw_arrangements(images, templates.arrangements(model, images)),
        )
        yield Drawing(
            "templates",
            "What each part draws",
            "One template for each part, as learnt, before it is moved into a pose. All images are composed of "
            "nothing but these.",
            draw_templates(templates.templates(model)),
        )
        yield Drawing(
            "objects",
            "What each object is made of",
            "Each object in its middle pose, with its parts in hues, as present as it makes them. Nobody told the "
            "model of classes: an object may be a style of a digit, or what several digits share.",
            draw_pictures(templates.objects(model)),
        )
        yield Drawing(
            "samples",
            "Images that the model generates",
            "In each one object is present, with its parts where it expects them and the deviations that it allows. "
            "What looks like no digit shows where the model is too lax.",
            draw_pictures(templates.samples(model, 16)),
        )


def _decoded(model, images, architecture):
    """What decoders make of poses."""
    if architecture.has(Reconstructs):
        decoded = reconstructions(model, images)
        yield Drawing(
            "reconstructions",
            "Images and their reconstructions",
            "Above the image, below what the decoder draws from the poses of capsules alone. What is missing below "
            "is not in the poses.",
            draw_reconstructions(images, decoded),
        )
    if architecture.has(DecodesPoses):
        yield Drawing(
            "perturbations",
            "What each dimension of a pose means",
            "The first image, decoded with one dimension of its most active capsule's pose changed by the value "
            "below. Along a row one property should change: thickness, slant, width or the form of a part.",
            draw_perturbations(perturbations(model, images[:1])),
        )
    if architecture.has(MasksByRank):
        alone, without = capsule_reconstructions(model, images[:1])
        yield Drawing(
            "capsule_reconstructions",
            "What each capsule contributes",
            "The first image, decoded from each capsule alone, then from all others, and how much its absence changes "
            "(white: much). Capsules that are masked change nothing.",
            draw_capsule_reconstructions(images[0], decoded[0], alone[0], without[0]),
        )


def _routed(model, image, layer, names):
    """Coefficients and votes of a layer that routes, for one image: means over several mix what routing tells apart."""
    shares = coefficients(model, image, layer=layer.name)
    yield Drawing(
        f"coefficients_{layer.name}",
        f"Which types of children are routed to which parents of {layer.name}",
        "Mean coefficient, over positions in the first image, from each type of child to each parent, in every "
        "iteration. Where routing decides, columns come apart.",
        draw_coefficients(shares, layer.child_types, names),
    )
    if layer.posed:
        distances = vote_distances(model, image, layer.name)
        yield Drawing(
            f"votes_{layer.name}",
            f"How far votes lie from the parents of {layer.name}",
            "Histograms of the distances of all votes in the first image, weighted by coefficients, for each iteration "
            "and parent. Agreement shows as a peak near zero that grows from iteration to iteration.",
            draw_vote_distances(*distances, names),
        )
    if not sees_whole_grid(layer, shares[-1]):
        return
    try:
        centres = child_centres(model, layer.name)
    except ValueError:  # Below it lies what only its author knows the windows of.
        return
    yield Drawing(
        f"coefficients_over_image_{layer.name}",
        f"From where children are routed to the parents of {layer.name}",
        "Light squares are positions whose active children go to this parent in the last iteration. The panel of "
        "the winner shows which parts of the image it is made of.",
        draw_over_image(
            image[0],
            coefficient_maps(model, image, layer.name)[0],
            centres,
            "activation times coefficient",
            names,
        ),
    )
    if not layer.posed:
        return
    yield Drawing(
        f"votes_over_image_{layer.name}",
        f"From where votes agree with the parents of {layer.name}",
        "Dark squares are positions whose votes lie close to the parent's pose in the last iteration; light ones "
        "disagree. Where the image says nothing of a class its votes scatter.",
        draw_over_image(
            image[0],
            vote_distance_maps(model, image, layer.name)[0],
            centres,
            "distance of votes",
            names,
        ),
    )

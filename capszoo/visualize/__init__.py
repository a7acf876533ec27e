"""What capsules have learnt, as arrays to look into; and thin drawings of those arrays.

Images go in as the model takes them (after `model.preprocess`). The drawings are `matplotlib.figure.Figure`s that
belong to nobody: no pyplot, no window, no global state; `figure.savefig(path)` writes one.
"""

from capszoo.visualize.activity import activation_maps, draw_activation_maps
from capszoo.visualize.decoding import (
    TWEAKS,
    draw_perturbations,
    draw_reconstructions,
    perturbations,
    reconstructions,
)
from capszoo.visualize.inference import draw_inferred_poses
from capszoo.visualize.over_image import (
    child_centres,
    coefficient_maps,
    draw_over_image,
    vote_distance_maps,
)
from capszoo.visualize.overview import overview
from capszoo.visualize.page import Drawing, write_page
from capszoo.visualize.parse import draw_parse, draw_samples
from capszoo.visualize.predictions import draw_predictions
from capszoo.visualize.routing import (
    coefficient_entropy,
    coefficients,
    coefficients_by_type,
    draw_coefficients,
)
from capszoo.visualize.sparsity import (
    capsule_reconstructions,
    draw_capsule_reconstructions,
    draw_rank_frequencies,
    draw_ranked_support,
    rank_frequencies,
    ranked_support,
)
from capszoo.visualize.templates import (
    arrangements,
    draw_arrangements,
    draw_free_form,
    draw_pictures,
    draw_templates,
)
from capszoo.visualize.viewpoints import draw_poses, views, winning_poses
from capszoo.visualize.votes import draw_vote_distances, vote_distances, vote_histogram

__all__ = [
    "TWEAKS",
    "Drawing",
    "activation_maps",
    "arrangements",
    "capsule_reconstructions",
    "child_centres",
    "coefficient_entropy",
    "coefficient_maps",
    "coefficients",
    "coefficients_by_type",
    "draw_activation_maps",
    "draw_arrangements",
    "draw_capsule_reconstructions",
    "draw_coefficients",
    "draw_free_form",
    "draw_inferred_poses",
    "draw_over_image",
    "draw_parse",
    "draw_perturbations",
    "draw_pictures",
    "draw_poses",
    "draw_predictions",
    "draw_rank_frequencies",
    "draw_ranked_support",
    "draw_reconstructions",
    "draw_samples",
    "draw_templates",
    "draw_vote_distances",
    "overview",
    "perturbations",
    "rank_frequencies",
    "ranked_support",
    "reconstructions",
    "views",
    "vote_distance_maps",
    "vote_distances",
    "vote_histogram",
    "winning_poses",
    "write_page",
]

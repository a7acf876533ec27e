"""The papers' evaluations as code, one registered object each; `protocol.py` is the contract.

`evaluate(model, recipe, protocol)` measures one on a model, `get_protocol(name, options).measure(subjects)` one with
options and on several models. These give a number, which a card may have:

  test_error            test split of the preset's own data set
  test_error_multicrop  the same, with scores averaged over up to 13 crops of each image (smallNORB and its twin)
  familiar_azimuths, novel_azimuths, familiar_elevations, novel_elevations
                        test pairs seen from the viewpoints of the training, or from all others
  expanded_mnist, affnist, affnist_synth, multimnist
                        digits that were moved, distorted or put on top of each other
  svm, svm_affnist, svm_affnist_synth, svm_transfer_affnist, svm_transfer_affnist_synth
                        a support vector machine on poses, for networks without classes; with `masked_` before the
                        name on masked poses; see `capszoo.protocols.support_vectors`
  probe, probe_rotated_45, probe_rotated_90, probe_rotated_135, probe_rotated_180, probe_affnist, probe_affnist_synth
                        a linear classifier on the variables of a generative model; with `presence_` before the name
                        on presences alone; `probe_rotated_...` with `_refitted` behind the name fitted to digits turned
                        as far; see `capszoo.protocols.linear_probe`
  clusters, presence_clusters
                        clusters of what objects explain, or of their presences, each told the name of one class; see
                        `capszoo.protocols.clusters`
  likelihood, likelihood_gain, active_feed_forward, active_inference, active_inference_l1
                        means over images of generative models; see `capszoo.protocols.means`

and these a report, with drawings:

  sparsity              how sparse activities are after iterative inference
  likelihood_comparison how likely test images are to generative models, beside Gaussians
  latent_optimisation   an image's variables optimised by themselves, beside what the network infers
  routing_comparison    test errors with and without routing and decoder
  viewpoints            a CNN and capsules on familiar and novel viewpoints
  attack                adversarial images
"""

import importlib

from capszoo import plugins

# The modules of protocols, and what they and others give. Imported when asked for: cards know measurements, and cards
# are read without Keras.
_REGISTERING = {
    "adversarial": ("AttackProtocol", "Robustness", "draw_robustness"),
    "classification": ("ShareOfWrong",),
    "clusters": ("ClusterError",),
    "latent_optimisation": ("LatentOptimisationProtocol", "LatentOptimisationReport"),
    "likelihood": ("LikelihoodProtocol", "LikelihoodReport"),
    "linear_probe": ("LinearProbeError",),
    "means": ("MeanOfImages",),
    "routing_comparison": ("RoutingProtocol", "RoutingReport"),
    "sparsity": ("SparsityProtocol", "SparsityReport", "infer_activities"),
    "support_vectors": ("SupportVectorError",),
    "viewpoints": ("ViewpointProtocol", "ViewpointReport"),
}
_OTHERS = {
    "measurement": ("Measurement",),
    "protocol": ("NumberProtocol", "Protocol", "evaluate", "get_protocol", "protocols"),
    "report": ("MeasuredReport", "Report"),
    "statistics": ("mean_interval", "wilson"),
    "subject": ("Subject",),
}
_HOMES = {name: module for module, names in (_REGISTERING | _OTHERS).items() for name in names}

__all__ = sorted(_HOMES)


def register():
    """Imports the modules of protocols, and plugins, which registers them."""
    for module in _REGISTERING:
        importlib.import_module(f"capszoo.protocols.{module}")
    plugins.load()


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'capszoo.protocols' has no attribute {name!r}")
    return getattr(importlib.import_module(f"capszoo.protocols.{_HOMES[name]}"), name)

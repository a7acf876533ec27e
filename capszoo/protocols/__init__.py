"""The papers' evaluations as code.

Each is measured by `evaluate(model, recipe, protocol)`; the names of the protocols do not change:

  test_error            test split of the preset's own data set
  test_error_multicrop  the same, with scores averaged over 13 crops of each image (smallNORB and its twin)
  familiar_azimuths, novel_azimuths, familiar_elevations, novel_elevations
                        test pairs seen from the viewpoints of the training, or from all others
  expanded_mnist, affnist, affnist_synth, multimnist
                        digits that were moved, distorted or put on top of each other
  svm, svm_affnist, svm_affnist_synth, svm_transfer_affnist, svm_transfer_affnist_synth
                        a support vector machine on poses, for networks without classes; with `masked_` before the
                        name on masked poses; see `capszoo.protocols.support_vectors`
  probe, probe_rotated_45, probe_rotated_90, probe_rotated_135, probe_rotated_180, probe_affnist, probe_affnist_synth
                        a linear classifier on the variables of a generative model; with `presence_` before the name
                        on presences alone; see `capszoo.protocols.linear_probe`
  likelihood, likelihood_gain, active_feed_forward, active_inference, active_inference_l1
                        means over images of generative models; see `capszoo.protocols.means`

`compare_viewpoints` sets two models' errors on familiar and novel viewpoints side by side, `measure_robustness`
attacks models with adversarial images, `measure_sparsity` counts long capsules after iterative inference,
`measure_likelihood` says how likely test images are to a generative model, `measure_free_inference` sets inference
without a network beside the network's, `compare_routing` errors with and without routing and decoder side by side.
"""

import importlib

# Imported when asked for: cards know measurements, and cards are read without Keras.
_HOMES = {
    "Robustness": "adversarial",
    "draw_robustness": "adversarial",
    "measure_robustness": "adversarial",
    "PROTOCOLS": "classification",
    "evaluate": "classification",
    "FreeInferenceReport": "free_inference",
    "measure_free_inference": "free_inference",
    "LikelihoodReport": "likelihood",
    "measure_likelihood": "likelihood",
    "RoutingComparison": "routing_comparison",
    "compare_routing": "routing_comparison",
    "SparsityReport": "sparsity",
    "infer_activities": "sparsity",
    "measure_sparsity": "sparsity",
    "wilson": "statistics",
    "Subject": "subject",
    "ViewpointComparison": "viewpoints",
    "compare_viewpoints": "viewpoints",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'capszoo.protocols' has no attribute {name!r}")
    return getattr(importlib.import_module(f"capszoo.protocols.{_HOMES[name]}"), name)

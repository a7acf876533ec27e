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

from capszoo.protocols.adversarial import Robustness, draw_robustness, measure_robustness
from capszoo.protocols.classification import PROTOCOLS, evaluate
from capszoo.protocols.free_inference import FreeInferenceReport, measure_free_inference
from capszoo.protocols.likelihood import LikelihoodReport, measure_likelihood
from capszoo.protocols.routing_comparison import RoutingComparison, compare_routing
from capszoo.protocols.sparsity import SparsityReport, infer_activities, measure_sparsity
from capszoo.protocols.statistics import wilson
from capszoo.protocols.subject import Subject
from capszoo.protocols.viewpoints import ViewpointComparison, compare_viewpoints

__all__ = [
    "PROTOCOLS",
    "FreeInferenceReport",
    "LikelihoodReport",
    "Robustness",
    "RoutingComparison",
    "SparsityReport",
    "Subject",
    "ViewpointComparison",
    "compare_routing",
    "compare_viewpoints",
    "draw_robustness",
    "evaluate",
    "infer_activities",
    "measure_free_inference",
    "measure_likelihood",
    "measure_robustness",
    "measure_sparsity",
    "wilson",
]

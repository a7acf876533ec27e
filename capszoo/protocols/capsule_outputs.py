"""What capsules say of all images of a split, for the classifiers that are fitted to it.

Protocols come in families that look at the same images and fit the same classifier: ten linear probes of a
generative network have two classifiers between them. So what took minutes is kept for the next protocol.
"""

import hashlib
import weakref
from collections import OrderedDict

import numpy as np

from capszoo.data.pipeline import evaluation_batches

# Results kept for each model. 60,000 images with 16 capsules of 16 numbers are 65 MB.
KEPT = 8
OUTPUTS = ("logits", "poses", "presence")
_kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def once(model, split, what, compute):
    """`compute()`, or what it returned before for the same model, images and `what`.

    where:
      model: the model itself, alive; another value of one weight makes it another.
      split: told by its fingerprint.
      what: a name for what is computed.
    """
    results = _kept.setdefault(model, OrderedDict())
    key = (_digest(model), split.fingerprint(), what)
    if key not in results:
        results[key] = compute()
    results.move_to_end(key)
    while len(results) > KEPT:
        results.popitem(last=False)
    return results[key]


def _digest(model):
    digest = hashlib.blake2b()
    # An exported model has no variables to show, and none that change.
    for variable in getattr(model, "variables", ()):
        digest.update(np.ascontiguousarray(variable))
    return digest.digest()


def capsule_outputs(model, split, batch_size=250, progress=None):
    """The outputs `OUTPUTS` as far as the model has them, `[N, O, ...]`, and labels `[N]`, of all images in order.

    Images are not augmented. Computed once, see `once`.

    where:
      progress: called with the number of images of each finished batch, or of all that were known.
    """
    seen = 0

    def advance(images):
        nonlocal seen
        seen += images
        if progress:
            progress(images)

    def compute():
        batches = []
        for batch in evaluation_batches(split, batch_size):
            outputs = model.predict_on_batch(batch["images"])
            known = {name: np.asarray(outputs[name]) for name in OUTPUTS if name in outputs}
            batches.append({**known, "labels": batch["labels"]})
            advance(len(batch["labels"]))
        together = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        return together, together.pop("labels")

    known = once(model, split, "outputs", compute)
    if not seen:
        advance(len(split))
    return known

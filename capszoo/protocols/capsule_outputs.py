"""What capsules say of all images of a split, for the classifiers that are fitted to it.

Protocols come in families that look at the same images and fit the same classifier: ten linear probes of a
generative network, of upright digits and of turned ones, have two classifiers between them. So what took minutes is
kept for the next protocol.
"""

import hashlib
import weakref
from collections import OrderedDict

import numpy as np

from capszoo.config import ConfigError
from capszoo.data.pipeline import evaluation_batches
from capszoo.progress import QUIET

# Results kept for each model, as long as it lives. 60,000 images with 16 capsules of 16 numbers are 65 MB, a support
# vector machine fitted to them may be twice as much.
KEPT = 8
OUTPUTS = ("logits", "poses", "presence", "explained", "code")
_kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def once(model, split, what, compute):
    """`compute()`, or what it returned before for the same model, images and `what`.

    where:
      model: another value of one weight makes it another; one without `weights` is taken never to change.
      split: known by its fingerprint.
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
    for weight in getattr(model, "weights", ()):
        digest.update(np.ascontiguousarray(weight))
    return digest.digest()


def capsule_outputs(model, split, needed=("poses",), batch_size=250, progress=QUIET):
    """The outputs `OUTPUTS` as far as the model has them, `[N, O, ...]`, and labels `[N]`, of all images in order.

    Images are not augmented. Computed once, see `once`.

    where:
      needed: outputs of which the model must have one.
      progress: advances by the images of each batch, or by all where they were known.

    Errors: `ConfigError`, with the first batch, for a model without an output of `needed`, and for several labels per
    image; `ValueError` for outputs that are NaN or infinite.
    """
    seen = 0

    def advance(images):
        nonlocal seen
        seen += images
        progress.advance(images)

    def compute():
        batches = []
        for batch in evaluation_batches(split, batch_size):
            outputs = model.predict_on_batch(batch["images"])
            _require(needed, outputs)
            for name in set(OUTPUTS) & set(outputs):
                if not np.isfinite(outputs[name]).all():
                    raise ValueError(f"the model's output {name!r} has values that are NaN or infinite.")
            if batch["labels"].ndim != 1:
                raise ConfigError(f"one label per image is needed. Received labels: {batch['labels'].shape}")
            known = {name: np.asarray(outputs[name]) for name in OUTPUTS if name in outputs}
            batches.append({**known, "labels": batch["labels"]})
            advance(len(batch["labels"]))
        together = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        return together, together.pop("labels")

    known, labels = once(model, split, "outputs", compute)
    _require(needed, known)
    if not seen:
        advance(len(split))
    return known, labels


def _require(names, outputs):
    if not set(names) & set(outputs):
        needed = " or ".join(map(repr, names))
        raise ConfigError(
            f"this protocol needs a model with the output {needed}. Received one of: {', '.join(outputs)}"
        )

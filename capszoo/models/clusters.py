"""Objects that begin as clusters of the arrangements that parts have in images."""

import keras
import numpy as np

from capszoo.layers.generative import LEAST_WIDTH

IMAGES = 8000
# Of a part in a cluster: what is nearer to 0 or 1 would never change its mind.
LEAST_SHARE = 0.05
LEAST_EXCESS = 0.02


def objects_from_clusters(model, split):
    """Gives each object of a `ProbabilisticCapsNet` the arrangement of a cluster of training images (k-means).

        M_ij = mean, c_ij = deviation of the poses A_j in cluster i,  gamma_ij = mean presence t_j

    where:
      model: its parts have been learnt already; its objects' offsets, widths and part presences are replaced.
      split: the first 8,000 images of it are clustered by their parts' poses, without augmentation.

    An object's pose is the identity at first, so that offsets are poses.
    Objects that all begin near each other end as one that explains every image: to give all parts to one object costs
    log p(s_j) = 0, to share them among k costs log k for each, and only objects that differ are worth that.
    Source: ours; Smith et al. 2020 do not say how their objects begin.
    """
    from sklearn.cluster import KMeans

    selection = model.get_layer("selection")
    poses, presence = _parts(model, split)
    clusters = KMeans(selection.num_objects, n_init=1, max_iter=50, random_state=0)
    members = clusters.fit_predict(poses.reshape(len(poses), -1))
    # [O, N, 2, 3] and [O, N]
    means, deviations = (
        np.stack([measure(poses[members == i], axis=0) for i in range(selection.num_objects)])
        for measure in (np.mean, np.std)
    )
    shares = np.stack([presence[members == i].mean(axis=0) for i in range(selection.num_objects)])
    common = means.mean(axis=0)
    selection.common_offsets.assign(common)
    selection.offsets.assign(np.swapaxes(means - common, 0, 1))
    # The inverse of softplus.
    widths = np.log(np.expm1(np.maximum(deviations - LEAST_WIDTH, LEAST_EXCESS)))
    common = widths.mean(axis=0)
    selection.common_widths.assign(common)
    selection.widths.assign(np.swapaxes(widths - common, 0, 1))
    shares = np.clip(shares, LEAST_SHARE, 1 - LEAST_SHARE)
    clutter = np.asarray(selection.part_presence)[:, :1]
    selection.part_presence.assign(np.concatenate([clutter, np.log(shares / (1 - shares)).T], axis=1))


def _parts(model, split):
    """Poses `[n, N, 2, 3]` and presences `[n, N]` of the parts of the first images of `split`."""
    parts = keras.Model(model.input, model.get_layer("part_capsules").output[:2])
    images = split.batch(np.arange(min(IMAGES, len(split))), None)["images"]
    return parts.predict(images, batch_size=200, verbose=0)

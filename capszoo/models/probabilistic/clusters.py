"""Objects that begin as clusters of the arrangements that parts have in images."""

import dataclasses

import keras
import numpy as np

from capszoo.extras import extra

IMAGES = 16000
ROUNDS = 8
STARTS = 16
START_IMAGES = 4000
# Of a part in a cluster: what is nearer to 0 or 1 would never change its mind.
LEAST_SHARE = 0.05
LEAST_EXCESS = 0.02
IDENTITY = np.eye(2, 3)


def objects_from_clusters(model, split):
    """Gives each object of a `ProbabilisticCapsNet` the arrangement of a cluster of training images.

    where:
      model: its parts have been learnt already; its objects' offsets, widths and part presences are replaced.
      split: the first 16,000 images of it are clustered by their parts, without augmentation. See `Arrangements`.

    Objects that all begin near each other end as one that explains every image: to give all parts to one object costs
    log p(s_j) = 0, to share them among k costs log k for each, and only objects that differ gain more.
    For the same reason the network that infers objects learns the clusters before the bound is trained: one that takes
    an object for another draws both together.
    Source: ours; Smith et al. 2020 do not say how their objects begin.
    """
    poses, presence = (part.astype("float64") for part in _parts(model, split))
    selection = model.get_layer("selection")
    least_width = selection.least_deviation + LEAST_EXCESS
    clusters = clustered(poses, presence, selection.num_objects, least_width)
    _give(selection, clusters)
    teach(model, poses, presence, clusters)


def _give(selection, clusters):
    """Makes the objects of a `PartsFromObjects` those of `clusters`."""
    common = clusters.offsets.mean(axis=0)
    selection.common_offsets.assign(common)
    selection.offsets.assign(np.swapaxes(clusters.offsets - common, 0, 1))
    # The inverse of softplus.
    widths = np.log(np.expm1(clusters.widths - selection.least_deviation))
    common = widths.mean(axis=0)
    selection.common_widths.assign(common)
    selection.widths.assign(np.swapaxes(widths - common, 0, 1))
    clutter = np.asarray(selection.part_presence)[:, :1]
    logits = np.log(clusters.shares / (1 - clusters.shares))
    selection.part_presence.assign(np.concatenate([clutter, logits.T], axis=1))


def _parts(model, split):
    """Poses `[n, N, 2, 3]` and presences `[n, N]` of the parts of the first images of `split`."""
    parts = keras.Model(model.input, model.get_layer("part_capsules").output[:2])
    images = split.batch(np.arange(min(IMAGES, len(split))), None)["images"]
    return parts.predict(images, batch_size=200, verbose=0)


def teach(model, poses, presence, clusters, epochs=10):
    """Fits q(objects | parts): presences to how likely each cluster is, poses to those of the likely ones.

    where:
      poses, presence: of the parts of images, `[n, N, 2, 3]` and `[n, N]`.
    """
    object_poses = clusters.object_poses(poses, presence)
    members = clusters.members(poses, presence, object_poses)
    inputs = [model.get_layer(name).input for name in ("part_matrices", "part_presences")]
    outputs = [model.get_layer(name).output for name in ("object_logits", "object_matrices1")]
    inference = keras.Model(inputs, outputs)
    inference.compile(
        keras.optimizers.Adam(1e-3, global_clipnorm=10.0),
        [keras.losses.BinaryCrossentropy(from_logits=True), keras.losses.MeanSquaredError()],
        jit_compile=False,
    )
    targets = [members[..., None], members[..., None, None] * object_poses]
    inference.fit([poses, presence], targets, batch_size=64, epochs=epochs, verbose=0)


@dataclasses.dataclass(frozen=True)
class Arrangements:
    """K clusters of images by the poses of their N parts, whatever the pose of the object that they make up.

        log p(A_1 .. A_N, t_1 .. t_N | i) = max over A of
            sum_j t_j (log N(A_j; (I + A) M_ij, c_ij) + log gamma_ij) + (1 - t_j) log(1 - gamma_ij)
            + log N(A; 0, 1) + log pi_i

    where:
      M_ij: `offsets[K, N, 2, 3]`; c_ij: `widths[K, N, 2, 3]`; gamma_ij: `shares[K, N]`; pi_i: `weights[K]`.

    What all clusters share is left out, such as where parts are that are off. Otherwise these are the densities of
    `PartsFromObjects` for images of a single object with presence 1.
    """

    offsets: np.ndarray
    widths: np.ndarray
    shares: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, poses, presence, members, object_poses, least_width):
        """The clusters to which images belong by `members[n, K]`, where objects have `object_poses[n, K, 2, 3]`."""
        linear = (IDENTITY + object_poses)[..., :2]
        counts = members[..., None] * presence[:, None] + 1e-9
        # Least squares of each M_ij: columns have the same matrix, and the last one is a place.
        targets = np.repeat(poses[:, None], members.shape[1], axis=1)
        targets[..., 2] -= object_poses[:, :, None, :, 2]
        matrices = np.einsum("bkn,bkrc,bkrd->kncd", counts, linear, linear)
        sums = np.einsum("bkn,bkrc,bknrd->kncd", counts, linear, targets)
        offsets = np.linalg.solve(matrices, sums)
        errors = targets - linear[:, :, None] @ offsets
        total = counts.sum(axis=0)
        widths = np.sqrt(np.einsum("bkn,bknrc->knrc", counts, errors**2) / total[..., None, None])
        shares = total / (members.sum(axis=0)[:, None] + 1e-9)
        return cls(
            offsets,
            np.maximum(widths, least_width),
            np.clip(shares, LEAST_SHARE, 1 - LEAST_SHARE),
            (members.sum(axis=0) + 1) / (len(members) + members.shape[1]),
        )

    def object_poses(self, poses, presence):
        """The most likely pose `A[n, K, 2, 3]` of each cluster's object in each image: a ridge regression."""
        count, clusters = len(poses), len(self.offsets)
        found = np.empty((count, clusters, 2, 3))
        corner = np.broadcast_to([0.0, 0.0, 1.0], (*self.offsets.shape[:2], 1, 3))
        maps = np.concatenate([self.offsets, corner], axis=2)
        for row in range(2):
            # The row A_r solves A_r M_ij = (A_j - M_ij)_r for all j and columns at once, [K, N * 3, 3].
            design = np.swapaxes(maps, 2, 3).reshape(clusters, -1, 3)
            precision = (self.widths[:, :, row] ** -2).reshape(clusters, -1)
            errors = (poses[:, None, :, row] - self.offsets[:, :, row]).reshape(count, clusters, -1)
            weights = np.repeat(presence, 3, axis=1)[:, None] * precision
            products = np.einsum("kxi,kxj->kxij", design, design).reshape(clusters, -1, 9)
            matrices = np.matmul(np.swapaxes(weights, 0, 1), products).reshape(clusters, count, 3, 3)
            sums = np.matmul(np.swapaxes(weights * errors, 0, 1), design)
            solved = np.linalg.solve(matrices + np.eye(3), sums[..., None])[..., 0]
            found[:, :, row] = np.swapaxes(solved, 0, 1)
        return found

    def log_densities(self, poses, presence, object_poses):
        """`[n, K]`, where objects have `object_poses[n, K, 2, 3]`."""
        maps = IDENTITY + object_poses
        means = maps[:, :, None, :, :2] @ self.offsets
        means[..., 2] += maps[:, :, None, :, 2]
        errors = (poses[:, None] - means) / self.widths
        on = np.sum(-0.5 * errors**2 - np.log(self.widths), axis=(-2, -1)) + np.log(self.shares)
        presence = presence[:, None]
        parts = np.sum(presence * on + (1 - presence) * np.log(1 - self.shares), axis=-1)
        return parts - 0.5 * np.sum(object_poses**2, axis=(-2, -1)) + np.log(self.weights)

    def log_likelihood(self, poses, presence):
        """The mean over images of the logarithm of the sum of all clusters' densities."""
        with extra("train"):
            from scipy.special import logsumexp

        densities = self.log_densities(poses, presence, self.object_poses(poses, presence))
        return float(np.mean(logsumexp(densities, axis=-1)))

    def members(self, poses, presence, object_poses):
        """How likely each image belongs to each cluster: `[n, K]`, rows that sum to one."""
        with extra("train"):
            from scipy.special import softmax

        return softmax(self.log_densities(poses, presence, object_poses), axis=-1)


def clustered(poses, presence, count, least_width):
    """`Arrangements` of `count` clusters: the likeliest of sixteen starts on 4,000 images, refined on all.

    A start is k-means of the poses and eight rounds of expectation maximisation; so is refining, without k-means.
    Of a single start the clusters are now good, now bad: on MNIST those of lower likelihood also mix more digits.

    where:
      poses: `[n, N, 2, 3]`; presence: `[n, N]`; least_width: of c_ij.
    """
    few = poses[:START_IMAGES], presence[:START_IMAGES]
    starts = (_maximised(_begun(*few, count, least_width, seed), *few, least_width) for seed in range(STARTS))
    best = max(starts, key=lambda arrangements: arrangements.log_likelihood(*few))
    return _maximised(best, poses, presence, least_width)


def _begun(poses, presence, count, least_width, seed):
    """`Arrangements` of clusters by k-means."""
    with extra("train"):
        from sklearn.cluster import KMeans

    kmeans = KMeans(count, n_init=1, max_iter=50, random_state=seed)
    members = np.eye(count)[kmeans.fit_predict(poses.reshape(len(poses), -1))]
    return Arrangements.of(
        poses, presence, members, np.zeros((len(poses), count, *poses.shape[2:])), least_width
    )


def _maximised(arrangements, poses, presence, least_width):
    """`arrangements` after eight rounds of expectation maximisation."""
    for _ in range(ROUNDS):
        object_poses = arrangements.object_poses(poses, presence)
        members = arrangements.members(poses, presence, object_poses)
        arrangements = Arrangements.of(poses, presence, members, object_poses, least_width)
    return arrangements

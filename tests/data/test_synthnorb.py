"""synthnorb has smallNORB's factors, splits and features, and toys that differ as toys do."""

import functools
import io
import itertools

import numpy as np
import pytest
import tensorflow_datasets as tfds
import trimesh
from PIL import Image

from capszoo.data import synthnorb
from capszoo.data.synthnorb import animals, humans, mesh, scenes
from capszoo.data.synthnorb import renderer as render
from capszoo.data.synthnorb.builder import Synthnorb

LABELS = ("label_category", "instance", "label_elevation", "label_azimuth", "label_lighting")
GREYS = np.array([grey for *_, grey in render.LIGHTINGS], float)


@pytest.fixture(scope="module")
def views():
    """One view of toy 0 of each category: uint8 [5, 6 lightings, 2 cameras, 96, 96]."""
    return np.stack([scenes.renderer_of(0, category, 0).render(40, 60) for category in range(5)])


class ThisProcess:
    """Stands for `multiprocessing` where a test has changed what is rendered."""

    class Pool:
        def __init__(self, processes):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        imap = staticmethod(map)


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(scenes.multiprocessing, "get_context", {"spawn": ThisProcess}.get)


@pytest.fixture
def small_grid(in_this_process, monkeypatch):
    """One animal and one figure in each split, from two elevations and two azimuths."""
    monkeypatch.setattr(scenes, "MODELS", dict(itertools.islice(scenes.MODELS.items(), 2)))
    monkeypatch.setattr(scenes, "INSTANCES", {"train": (4,), "test": (0,)})
    monkeypatch.setattr(scenes, "ELEVATIONS", (30, 70))
    monkeypatch.setattr(scenes, "AZIMUTHS", (0, 20))


def test_the_same_seed_makes_the_same_images(views):
    np.testing.assert_array_equal(scenes.renderer_of(0, 3, 0).render(40, 60), views[3])


def test_another_seed_makes_other_toys(views):
    assert np.abs(scenes.renderer_of(1, 3, 0).render(40, 60).astype(int) - views[3]).mean() > 3


def test_a_studio_holds_the_toy_that_was_asked_for(monkeypatch):
    made = []
    for name, model in scenes.MODELS.items():

        def recorded(instance, rng, name=name, model=model):
            made.append((name, instance))
            return model(instance, rng)

        monkeypatch.setitem(scenes.MODELS, name, recorded)
    for category, instance in itertools.product(range(5), (2, 7)):
        scenes.renderer_of(0, category, instance)
    assert made == list(itertools.product(scenes.MODELS, (2, 7)))


@pytest.mark.slow
@pytest.mark.parametrize("category", scenes.MODELS)
def test_a_category_has_ten_toys_that_chance_alone_does_not_tell_apart(category):
    toys = [
        scenes.MODELS[category](instance, np.random.default_rng(0)).normalised(0) for instance in range(10)
    ]
    sizes = np.array([[*np.ptp(toy.vertices, axis=0), toy.area] for toy in toys])
    for one, other in itertools.combinations(range(10), 2):
        assert np.abs(sizes[one] - sizes[other]).max() > 0.02


@pytest.mark.parametrize("instance", range(10))
def test_each_figure_holds_something(monkeypatch, instance):
    def parts():
        return len(scenes.model_human(instance, np.random.default_rng(0))._parts)

    holding = parts()
    monkeypatch.setattr(humans, "_give", lambda *_: None)
    assert parts() < holding


def test_proportions_vary_by_up_to_12_percent_and_counts_do_not():
    plan = animals.Animal(humps=2)
    drawn = [mesh.varied(plan, np.random.default_rng(seed)) for seed in range(100)]
    assert {toy.humps for toy in drawn} == {2}
    factors = np.array([toy.leg / plan.leg for toy in drawn])
    assert 0.88 <= factors.min() < 0.9
    assert 1.1 < factors.max() <= 1.12
    assert drawn[0].neck / plan.neck != factors[0]  # each by its own factor


def test_a_normalised_toy_of_radius_one_stands_on_the_table_around_the_origin():
    toy = mesh.Toy()
    toy.ball((3, 2, 5), (0.6, 0.3, 0.2), mirror=True)
    vertices = toy.normalised(yaw=90).vertices
    np.testing.assert_allclose(vertices.min(0)[:2], -vertices.max(0)[:2], atol=1e-12)
    assert vertices[:, 2].min() == 0
    middle = [0, 0, vertices[:, 2].max() / 2]
    assert np.linalg.norm(vertices - middle, axis=1).max() == pytest.approx(1)
    across, along, _ = np.ptp(vertices, axis=0)  # turned by 90 degrees, the twins lie side by side in x
    assert across / along == pytest.approx((2 + 2 + 2 * 0.3) / (2 * 0.6))


def test_azimuth_zero_is_not_the_same_for_all_toys(monkeypatch):
    yaws = []
    normalised = mesh.Toy.normalised
    monkeypatch.setattr(mesh.Toy, "normalised", lambda toy, yaw: yaws.append(yaw) or normalised(toy, yaw))
    for instance in range(5):
        scenes.renderer_of(0, 4, instance)
    assert len(set(yaws)) == 5
    assert np.ptp(yaws) > 90


def test_an_azimuth_turns_the_toy_and_neither_lamps_nor_cameras():
    truck = scenes.model_truck(0, np.random.default_rng(0))
    turned = render.Renderer(truck.normalised(yaw=60), 0.7).render(45, 0).astype(int)
    still = render.Renderer(truck.normalised(yaw=0), 0.7)
    assert np.abs(still.render(45, 60) - turned).mean() < 1.2
    assert np.abs(still.render(45, 300) - turned).mean() > 5


def test_images_have_the_grey_levels_of_smallnorb(views):
    assert 190 < views.mean() < 215  # smallNORB: mean 202, from 15 to 232
    assert views.min() < 60
    assert 220 < views.max() < 245


def test_the_table_has_a_grey_of_its_own_in_each_lighting(views):
    corner = views[..., :3, :3].mean((0, 2, 3, 4))
    np.testing.assert_allclose(corner, GREYS, atol=8)
    assert len(set(GREYS)) == 6


def test_each_lighting_shades_the_toy_in_a_way_of_its_own(views):
    relative = views[:, :, 0] / GREYS[:, None, None]
    for one, other in itertools.combinations(range(6), 2):
        assert np.abs(relative[:, one] - relative[:, other]).mean() > 0.01


def test_a_toy_throws_its_shadow_on_the_table_away_from_the_lamp():
    # The ball itself is in columns 34 to 62.
    ball = render.Renderer(_standing(trimesh.creation.icosphere(3)), 0.3).render(50, 0)[1, 0]
    assert np.mean(ball[:, :30] < 0.85 * GREYS[1]) > 0.05  # lighting 1 comes from the right
    assert np.mean(ball[:, 66:] < 0.85 * GREYS[1]) == 0


def test_a_toy_throws_shadows_on_itself():
    floor = trimesh.creation.box([2, 2, 0.1], trimesh.transformations.translation_matrix([0, 0, 0.05]))
    wall = trimesh.creation.box([0.1, 2, 1], trimesh.transformations.translation_matrix([0.9, 0, 0.5]))
    toy = render.Renderer(_standing(trimesh.util.concatenate([floor, wall])), 0.6)
    in_front, behind = (
        toy.render(70, azimuth)[3, 0] for azimuth in (0, 180)
    )  # lighting 3 comes from the front
    assert np.mean(in_front < 0.35 * GREYS[3]) > np.mean(behind < 0.35 * GREYS[3]) + 0.01


def test_a_toy_darkens_the_table_where_it_stands_even_towards_the_lamps():
    ball = render.Renderer(_standing(trimesh.creation.icosphere(3)), 0.3).render(70, 0)[:, 0]
    below = ball[:, 63:66, 46:50].mean((1, 2))  # the ball itself ends above row 62
    assert np.all(below < 0.95 * ball[:, 90:, 46:50].mean((1, 2)))


def test_shadows_are_soft():
    ball = render.Renderer(_standing(trimesh.creation.icosphere(3)), 0.3).render(50, 0)[1, 0].astype(float)
    assert np.abs(np.diff(ball[:, :32])).max() < 32  # of the 100 grey levels between table and shadow


def test_smoothing_mixes_no_light_of_the_toy_with_that_of_the_table():
    on_toy = np.zeros((192, 192), bool)
    on_toy[50:90, 60:61] = True
    np.testing.assert_array_equal(render._smoothed(1.0 * on_toy.ravel(), on_toy.ravel(), 8), on_toy.ravel())


def test_a_toy_stands_upright_and_looks_lower_to_higher_cameras():
    def rows_of(elevation):
        toy = render.Renderer(_standing(trimesh.util.concatenate([mast, beam])), 0.6)
        width = np.sum(toy.render(elevation, 0)[:, 0].max(0) < 200, 1)
        return np.flatnonzero(width), np.flatnonzero(width > 20)

    mast = trimesh.creation.box([0.1, 0.1, 1.6])
    beam = trimesh.creation.box([0.1, 1, 0.1], trimesh.transformations.translation_matrix([0, 0, 0.8]))
    (toy, beam_at_30), (toy_from_above, _) = rows_of(30), rows_of(70)
    assert beam_at_30.max() < toy.mean()
    assert np.ptp(toy_from_above) / np.ptp(toy) == pytest.approx(
        np.cos(np.radians(70)) / np.cos(np.radians(30)), abs=0.1
    )


def test_toys_fill_the_frame_and_stay_inside(views):
    for view in views:
        lit = (view[:, 0] / GREYS[:, None, None]).max(
            0
        )  # shadows differ between lightings, the toy stays dark
        rows, columns = np.nonzero(lit < 0.85)
        assert 0.3 < max(np.ptp(rows), np.ptp(columns)) / render.SIZE < 0.9
        assert min(rows.min(), columns.min()) > 2
        assert max(rows.max(), columns.max()) < 93


def test_what_is_nearer_than_the_middle_lies_further_left_for_the_right_camera():
    def column_of(ball_at):
        ball = trimesh.creation.icosphere(3, 0.1)
        ball.apply_translation([ball_at, 0, 0.1])
        far = trimesh.creation.box([0.01, 0.01, 2.0], trimesh.transformations.translation_matrix([0, 0, 1]))
        dark = 255 - render.Renderer(trimesh.util.concatenate([ball, far]), 0.6).render(30, 0)[
            0, :, 50:
        ].astype(float)
        dark = np.where(dark > 80, dark, 0)
        return (dark.sum(1) @ np.arange(96)) / dark.sum((1, 2))

    near, behind = column_of(0.8), column_of(-0.8)
    assert near[0] - near[1] > 1
    assert near[0] - near[1] > behind[0] - behind[1] + 1


def _standing(mesh):
    return trimesh.Trimesh(mesh.vertices - [0, 0, mesh.vertices[:, 2].min()], mesh.faces, process=False)


@pytest.mark.parametrize(("split", "instances"), [("train", {4, 6, 7, 8, 9}), ("test", {0, 1, 2, 3, 5})])
def test_a_split_is_the_full_grid_over_its_own_instances(in_this_process, monkeypatch, split, instances):
    class Blank:
        def render(self, elevation, azimuth):
            assert (elevation, azimuth) in itertools.product(range(30, 71, 5), range(0, 341, 20))
            return np.zeros((6, 2, 1, 1), np.uint8)

    monkeypatch.setattr(scenes, "_renderer_of", lambda *toy: Blank())
    monkeypatch.setattr(scenes, "_png", lambda image: b"")
    grid = [tuple(factors[label] for label in LABELS) for factors, *_ in scenes.examples(0, split, 1)]
    assert len(grid) == 24_300
    assert set(grid) == set(itertools.product(range(5), instances, range(9), range(18), range(6)))


def test_names_and_shapes_of_the_features_are_those_of_smallnorb(tmp_path):
    twin, real = Synthnorb(data_dir=tmp_path).info, tfds.builder("smallnorb", data_dir=tmp_path).info
    assert {name: repr(feature) for name, feature in twin.features.items()} == {
        name: repr(feature) for name, feature in real.features.items()
    }
    assert twin.features["label_category"].names == real.features["label_category"].names
    assert twin.supervised_keys == real.supervised_keys


@pytest.mark.slow
def test_the_prepared_set_holds_each_view_under_its_codes(small_grid, tmp_path):
    @functools.cache
    def view(category, instance, elevation, azimuth):
        return scenes.renderer_of(3, category, instance).render((30, 70)[elevation], (0, 20)[azimuth])

    folder = synthnorb.generate(tmp_path, seed=3)
    assert folder == tmp_path / "synthnorb" / "1.0.0"
    for split, instance in (("train", 4), ("test", 0)):
        examples = list(tfds.as_numpy(tfds.load("synthnorb", data_dir=tmp_path, split=split, download=False)))
        assert len(examples) == 2 * 2 * 2 * 6
        for example in examples:
            category, toy, elevation, azimuth, lighting = (int(example[label]) for label in LABELS)
            assert toy == instance
            pair = view(category, toy, elevation, azimuth)[lighting]
            np.testing.assert_array_equal(np.stack([example["image"], example["image2"]])[..., 0], pair)


@pytest.mark.slow
def test_other_processes_render_what_this_one_does():
    examples = scenes.examples(0, "train", 2)
    factors, *pair = next(examples)
    examples.close()
    assert set(factors.values()) == {0, 4}
    expected = scenes.renderer_of(0, 0, 4).render(30, 0)[0]
    np.testing.assert_array_equal([np.asarray(Image.open(io.BytesIO(image))) for image in pair], expected)


def test_an_interrupted_run_leaves_nothing_that_is_taken_for_a_data_set(small_grid, tmp_path, monkeypatch):
    def interrupted(*toy):
        raise KeyboardInterrupt

    monkeypatch.setattr(scenes, "_renderer_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        synthnorb.generate(tmp_path)
    assert not list(tmp_path.glob("synthnorb/1.0.0"))
    assert not list(tmp_path.rglob("dataset_info.json"))


def test_a_prepared_set_is_kept_and_never_taken_for_one_of_another_seed(small_grid, tmp_path, monkeypatch):
    folder = synthnorb.generate(tmp_path, seed=3)
    monkeypatch.setattr(scenes, "examples", None)  # nothing is rendered again
    assert synthnorb.generate(tmp_path, seed=3) == folder
    with pytest.raises(ValueError, match=r"seed 4 in .*Received: seed 3"):
        synthnorb.generate(tmp_path, seed=4)

"""Curves of figure 3 count the right images, attacked by the right model."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from support import Recorded
from tiny_pictures import write_folder

from capszoo.config import ConfigError
from capszoo.data import Folder
from capszoo.protocols import AttackProtocol, Subject, adversarial, draw_robustness, wilson
from capszoo.protocols.attacks import fgsm, loss_gradient
from capszoo.training.scoring import predict_split, wrong
from capszoo.zoo.recipes import parse_recipe

EPSILONS = (0.1, 0.5)
COUNT = 56  # more than one batch


class Watched:
    """A model that remembers what it was shown."""

    def __init__(self, model):
        self.model, self.shown = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *arguments, **keywords):
        return self.model(*arguments, **keywords)

    def predict_on_batch(self, images):
        self.shown.append(np.array(images))
        return self.model.predict_on_batch(images)


def subject(recipe, name, seed, watched=False):
    chosen = recipe("tiny_cnn")
    keras.utils.set_random_seed(seed)
    model = chosen.build()
    return Subject(name, chosen, Watched(model) if watched else model)


@pytest.fixture(scope="module")
def patched():
    """The tiny data set for fixtures that live longer than a test."""
    from tiny_norb import read_pairs

    from capszoo.data import smallnorb

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smallnorb, "read_pairs", read_pairs)
        yield


@pytest.fixture(scope="module")
def measured(patched, recipe_folder):
    """Two white boxes and a black one: the report, and the subjects by name."""
    from capszoo.zoo.recipes import read_recipe

    made = [
        subject(lambda name: read_recipe(recipe_folder / f"{name}.yaml"), name, seed, watched=True)
        for seed, name in enumerate(("first", "second", "maker"))
    ]
    progress = Recorded()
    protocol = AttackProtocol(images=COUNT, epsilons=EPSILONS, source_model="maker")
    report = protocol.measure(made, command="again", progress=progress)
    assert (progress.begun, progress.counts) == ([("attack", 56, 0)], [50, 6])
    return report, {each.name: each for each in made}


def curve(report, model, made_with, attack="fgsm", targeted=False):
    (found,) = [
        c
        for c in report.curves
        if (c.model, c.made_with, c.attack, c.targeted) == (model, made_with, attack, targeted)
    ]
    return found


def recognise(shown, images):
    """Indices of the pictures `shown` among `images`."""
    return np.array([np.abs(images - x).max(axis=(1, 2, 3)).argmin() for x in shown])


def whole_test_split(data):
    split = data.open("test")
    return split.batch(np.arange(len(split)))


def test_there_is_a_white_box_of_every_kind_and_an_untargeted_black_box(measured):
    report, _ = measured
    kinds = {(c.model, c.made_with, c.attack, c.targeted) for c in report.curves}
    white = {(m, m, a, t) for m in ("first", "second") for a in ("fgsm", "bim") for t in (False, True)}
    assert kinds == white | {(m, "maker", a, False) for m in ("first", "second") for a in ("fgsm", "bim")}
    for each in report.curves:
        assert tuple(p.epsilon for p in each.points) == (0, *EPSILONS)
        assert each.metric == ("success rate" if each.targeted else "accuracy")


def test_epsilon_zero_is_the_accuracy_on_unchanged_images(measured, recipe):
    report, subjects = measured
    shown = np.concatenate(
        [subjects["first"].model.shown[0], first_of_second_batch(subjects["first"].model.shown)]
    )
    everything = recipe("tiny_cnn").data.open("test")
    images = everything.batch(np.arange(len(everything)))["images"]
    which = recognise(shown, images)
    np.testing.assert_allclose(images[which], shown, atol=1e-5)
    assert len(set(which)) == COUNT
    scores, labels = predict_split(subjects["first"].model.model, everything)
    right = int((~wrong(scores, labels))[which].sum())
    for attack in ("fgsm", "bim"):
        for made_with in ("first", "maker"):
            point = curve(report, "first", made_with, attack).points[0]
            assert (point.count, point.n) == (right, COUNT)
            assert point.value == right / COUNT
            assert point.interval == wilson(right, COUNT)


def first_of_second_batch(shown):
    return next(images for images in shown[1:] if len(images) == COUNT - 50)


def test_targets_are_classes_that_the_image_does_not_have(measured):
    report, _ = measured
    for name in ("first", "second"):
        for point in curve(report, name, name, targeted=True).points:
            assert point.n == COUNT * 4  # each image is attacked towards the four other classes


def test_attacks_work_better_the_further_they_may_go_and_bim_is_the_stronger(measured):
    report, _ = measured
    for name in ("first", "second"):
        for targeted, better in ((False, -1), (True, 1)):
            values = {
                a: [p.value for p in curve(report, name, name, a, targeted).points] for a in ("fgsm", "bim")
            }
            assert better * (values["fgsm"][2] - values["fgsm"][0]) > 0
            assert better * (values["bim"][2] - values["fgsm"][2]) >= 0


def test_a_black_box_is_shown_images_made_with_another_models_gradient(measured):
    _, subjects = measured
    maker, victim = subjects["maker"], subjects["first"]
    assert maker.model.shown == []
    clean = victim.model.shown[0]
    labels_of_batch = [s for s in victim.model.shown if len(s) == 50]
    everything = whole_test_split(maker.recipe.data)
    which = recognise(clean, everything["images"])
    gradient = loss_gradient(maker.model.model, maker.recipe)
    grey = adversarial._grey(maker.recipe.data)
    _, _, low, high = adversarial._inputs(maker.recipe.data, grey, which)
    (expected,) = fgsm(gradient, clean, everything["labels"][which], (0.5,), low, high)
    assert min(np.abs(s - expected).max() for s in labels_of_batch) < 1e-5


def test_changed_pixels_stay_between_the_images_own_black_and_white(measured, recipe):
    """In grey levels, which the network's input is turned back into."""
    _, subjects = measured
    shown = subjects["first"].model.shown
    pictures = whole_test_split(recipe("tiny_cnn", "data.standardise=false", "data.jitter=raw").data)[
        "images"
    ].astype("float64")
    mean, deviation = (f(pictures, axis=(1, 2, 3), keepdims=True) for f in (np.mean, np.std))
    which = recognise(shown[0], (pictures - mean) / deviation)
    # The first three things shown are the first batch, unchanged and after FGSM with each epsilon.
    for changed, epsilon in zip(shown[:3], (0, *EPSILONS), strict=True):
        levels = changed * deviation[which] + mean[which]
        assert levels.min() > -1e-6
        assert levels.max() < 1 + 1e-6
        assert (np.abs(levels - pictures[which]) < epsilon * deviation[which] + 1e-5).all()
    assert levels.min() < 1e-6  # somewhere the bound was reached


def test_the_same_images_are_chosen_every_time(recipe):
    reports = [
        AttackProtocol(epsilons=(0.2,), images=count).measure([subject(recipe, "a", 0)])
        for count in (20, 20, 0)
    ]
    assert reports[0].curves == reports[1].curves
    assert [r.n for r in reports] == [20, 20, 150]
    assert reports[2].out_of == reports[0].out_of == 150


def test_gradients_are_reported_at_the_unchanged_images(measured):
    report, subjects = measured
    assert [g.model for g in report.gradients] == ["first", "second"]
    chosen = subjects["first"]
    shown = [chosen.model.shown[0], first_of_second_batch(chosen.model.shown)]
    everything = whole_test_split(chosen.recipe.data)
    gradient, parts = loss_gradient(chosen.model.model, chosen.recipe), []
    for clean in shown:
        labels = everything["labels"][recognise(clean, everything["images"])]
        parts.append(gradient(clean, labels))
    gradients = np.concatenate(parts)
    assert report.gradients[0].mean_magnitude == pytest.approx(np.abs(gradients).mean(), rel=1e-4)
    assert report.gradients[0].zero_share == pytest.approx((gradients == 0).mean(), abs=1e-3)


def test_zero_gradients_are_distinguished_by_pixel_and_by_image():
    gradients = np.ones((4, 2, 2, 1))
    gradients[:, 0, 0] = 0  # a pixel that is never read
    gradients[3] = 0  # an image without any
    gradients[1, 1, 1] = -3
    report = adversarial._gradient_report("net", gradients)
    assert (report.zero_share, report.unread_share, report.blind_share) == (7 / 16, 1 / 4, 1 / 4)
    assert report.mean_magnitude == (8 + 3) / 16


def test_the_success_rate_is_the_mean_over_targets_and_not_over_images():
    # 110 images, each attacked towards two other classes.
    point = adversarial._point(0.1, [(1, 10), (90, 100), (9, 110)], 110)
    assert point.value == pytest.approx((0.1 + 0.9 + 9 / 110) / 3)
    assert (point.count, point.n) == (100, 220)
    # The interval of this mean, and not of the 100 of 220.
    assert point.interval == pytest.approx(wilson(point.value * 110, 110))
    assert point.interval[0] < point.value < point.interval[1]


def test_images_of_one_class_are_attacked_towards_all_others():
    assert adversarial._point(0.1, [(1, 1)] * 9, 1).interval == pytest.approx(wilson(1, 1))


def test_the_report_is_json_that_names_data_space_and_loss(measured):
    report, subjects = measured
    data = json.loads(report.to_json())
    assert (data["data"], data["split"], data["n"], data["out_of"], data["classes"]) == (
        "synthnorb",
        "test",
        56,
        150,
        5,
    )
    assert data["space"] == "model input, standardised"
    assert (data["loss"], data["command"]) == ("cross_entropy", "again")
    assert data["fingerprint"] == subjects["first"].recipe.data.open("test").fingerprint()
    assert data["steps"] == "5 steps of 0.25 epsilon"
    assert data["curves"][0]["points"][0].keys() == {"epsilon", "value", "interval", "count", "n"}
    assert data["revision"]


def test_the_figure_has_a_line_for_each_curve_in_the_panel_of_its_kind(measured):
    report, _ = measured
    panels = draw_robustness(report).axes
    assert [len(axes.get_legend_handles_labels()[0]) for axes in panels] == [4, 4, 4]
    assert "accuracy" in panels[0].get_title()
    assert "success" in panels[1].get_title()
    assert "epsilon" in panels[0].get_xlabel()
    line = next(x for x in panels[1].lines if x.get_label() == "second, BIM")
    assert list(line.get_ydata()) == [p.value for p in curve(report, "second", "second", "bim", True).points]
    assert list(line.get_xdata()) == [0, *EPSILONS]


def test_without_a_black_box_there_is_no_panel_for_one_and_all_images_can_be_attacked(recipe):
    report = AttackProtocol(epsilons=(0.2,), images=0).measure([subject(recipe, "a", 0)])
    assert (report.n, report.out_of) == (150, 150)
    assert len(draw_robustness(report).axes) == 2


def test_pictures_of_ones_own_are_attacked_before_they_are_standardised(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "own", count=4)), size=8, channels=1, standardise=True)
    grey = adversarial._grey(data).batch(np.arange(3))["images"]
    assert 0 <= grey.min() < 0.5 < grey.max() <= 1
    images, _, low, high = adversarial._inputs(data, adversarial._grey(data), np.arange(3))
    np.testing.assert_allclose(images, data.open("test").batch(np.arange(3))["images"], atol=1e-5)
    assert (low < images).all()
    assert (images <= high + 1e-5).all()


def test_images_that_are_only_there_standardised_are_refused(recipe, monkeypatch):
    first = subject(recipe, "a", 0)
    monkeypatch.setattr(type(first.recipe.data), "unstandardised", property(lambda data: data))
    with pytest.raises(ConfigError, match=r"does not give them, see DataSet\.unstandardised"):
        AttackProtocol().measure([first])


def test_models_that_take_other_images_or_share_a_name_are_refused(recipe, tmp_path):
    first = subject(recipe, "a", 0)
    other = Subject("b", recipe("tiny_cnn", "data.standardise=false", "data.jitter=raw"), None)
    with pytest.raises(ConfigError, match="the same images"):
        AttackProtocol().measure([first, other])
    data = Folder(path=str(write_folder(tmp_path / "own", count=4)), size=8, channels=1)
    own = [
        Subject(name, dataclasses.replace(first.recipe, data=each), None)
        for name, each in (("a", data), ("b", dataclasses.replace(data, standardise=True)))
    ]
    with pytest.raises(ConfigError, match="the same images"):
        AttackProtocol().measure(own)
    with pytest.raises(ConfigError, match="a name of its own"):
        AttackProtocol().measure([first, first])


def test_options_of_training_alone_do_not_make_data_different(recipe):
    other = recipe("tiny_cnn", "data.validation_instance=4", "data.contrast=0.1")
    subjects = [subject(recipe, "a", 0), Subject("b", other, other.build())]
    assert adversarial._common_data(subjects) == subjects[0].recipe.data


@pytest.mark.parametrize(
    "epsilons", [(), (0.0, 0.1), (0.2, 0.1), (0.1, 0.1), (0.1, float("inf")), (0.1, float("nan"))]
)
def test_epsilons_must_be_positive_and_rise(epsilons):
    with pytest.raises(ConfigError, match="must be positive and rise"):
        AttackProtocol(epsilons=epsilons)


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_the_maker_of_a_black_box_is_one_of_several_models(recipe, names):
    subjects = [subject(recipe, name, 0) for name in names]
    with pytest.raises(ConfigError, match=f"one of at least two models, {', '.join(names)}. Received: 'c'"):
        AttackProtocol(source_model="c").measure(subjects)


@pytest.mark.parametrize("count", [151, -1])
def test_more_images_than_there_are_cannot_be_attacked(recipe, count):
    with pytest.raises(ValueError, match="from 1 to 150"):
        AttackProtocol(images=count).measure([subject(recipe, "a", 0)])


def test_several_labels_per_image_are_refused():
    pairs = parse_recipe("pairs", {"model": {"name": "dynamic"}, "data": {"name": "multimnist"}})
    with pytest.raises(ConfigError, match="one label per image"):
        AttackProtocol().measure([Subject("pairs", pairs, None)])

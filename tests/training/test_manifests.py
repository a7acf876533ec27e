"""Manifests in export/training: what they start trains together."""

from pathlib import Path

import pytest
import yaml

from capszoo.training import processes
from capszoo.zoo.recipes import read_recipe

FOLDER = Path(__file__).parents[2] / "export" / "training"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_pod_of_a_job_knows_the_others(path):
    service, job = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    name, spec = job["metadata"]["name"], job["spec"]
    assert spec["completionMode"] == "Indexed"
    count = spec["completions"]
    assert spec["parallelism"] == count > 1
    # The pod of index 0 is NAME-0 in the domain of a service without an address of its own.
    pod = spec["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    port = service["spec"]["ports"][0]["port"]
    environment = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
    assert environment["KERAS_BACKEND"]["value"] == "jax"
    assert environment[processes.COUNT]["value"] == str(count)
    assert environment[processes.ADDRESSES]["value"] == f"{name}-0.{pod['subdomain']}:{port}"
    index = environment[processes.INDEX]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    # All of them are started again after one has died.
    assert pod["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_job_trains_a_recipe_whose_batch_divides(path):
    _, job = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    container = job["spec"]["template"]["spec"]["containers"][0]
    capszoo, train, recipe, out, folder = container["command"]
    assert (capszoo, train, out) == ("capszoo", "train", "--out")
    devices = job["spec"]["completions"] * sum(container["resources"]["limits"].values())
    assert read_recipe(recipe).train.batch_size % devices == 0
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert any(folder.startswith(mount) for mount in mounts)
    assert environment_of(container, "CAPSZOO_DATA_DIR") in mounts


def environment_of(container, name):
    return next(entry["value"] for entry in container["env"] if entry["name"] == name)

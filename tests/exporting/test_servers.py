"""`capszoo serve` starts a server that exists, on a bundle that exists or is made."""

import json
import os
import sys

import numpy as np
import pytest

import capszoo as zoo
from capszoo.exporting import identity, servers
from capszoo.training.weight_files import write_arrays


@pytest.fixture
def environments():
    """The environments of what was started."""
    return []


@pytest.fixture
def started(monkeypatch, environments):
    """What was started in place of this process."""
    commands = []

    def start(name, arguments, environment):
        commands.append([name, *arguments[1:]])
        environments.append(environment)

    monkeypatch.setattr(os, "execvpe", start)
    return commands


@pytest.fixture
def on_the_path(monkeypatch):
    """Which programs are on the path; the daemon of "docker" answers."""
    programs = set()
    monkeypatch.setattr(servers.shutil, "which", lambda name: name if name in programs else None)
    monkeypatch.setattr(servers, "_has_docker", lambda: "docker" in programs)
    return programs


def has(folder, model, *versions):
    for version in versions:
        (folder / model / version).mkdir(parents=True)
        (folder / model / version / "saved_model.pb").touch()
    return folder


def test_tensorflow_serving_polls_the_folder_of_versions(run, started, on_the_path, tmp_path):
    on_the_path |= {"tensorflow_model_server", "docker"}
    bundles = has(tmp_path, "net", "2", "10")
    status, said, _ = run("serve", "net", "--bundles", bundles, "--port", "7000", "--grpc-port", "7001")
    assert status == 0
    assert "http://localhost:7000/v1/models/net" in said
    assert started == [[
        "tensorflow_model_server", "--rest_api_port=7000", "--port=7001", "--model_name=net",
        f"--model_base_path={tmp_path / 'net'}",
    ]]  # fmt: skip


def test_a_python_with_kserve_gets_the_newest_version(run, started, on_the_path, monkeypatch, tmp_path):
    on_the_path.add("docker")
    monkeypatch.setattr(servers, "_has_kserve", lambda python: str(python) == "its/python")
    run("serve", "net", "--bundles", has(tmp_path, "net", "2", "10"), "--python", "its/python")
    ((program, script, *arguments),) = started
    assert program == "its/python"
    assert script.endswith("kserve_server.py")
    assert arguments == [
        "--model_name", "net", "--bundle", str(tmp_path / "net" / "10"), "--http_port", "8501", "--grpc_port", "8500",
    ]  # fmt: skip


def test_a_folder_named_kserve_is_no_kserve(tmp_path, monkeypatch):
    (tmp_path / "kserve").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not servers._has_kserve(sys.executable)


@pytest.mark.parametrize(("status", "found"), [(0, True), (1, False), (None, False)])
def test_docker_whose_daemon_does_not_answer_is_no_server(monkeypatch, tmp_path, status, found):
    if status is not None:
        (tmp_path / "docker").write_text(f'#!/bin/sh\n[ "$1" = version ] && exit {status}\nexit 3\n')
        (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert servers._has_docker() == found


def test_docker_serves_this_machine_only(run, started, on_the_path, tmp_path):
    on_the_path.add("docker")
    run("serve", "net", "--bundles", has(tmp_path, "net", "1"))
    ((program, *arguments),) = started
    assert program == "docker"
    assert "127.0.0.1:8501:8501" in arguments
    assert f"{tmp_path / 'net'}:/models/net:ro" in arguments


def test_a_server_gets_the_environment_of_the_bundle_unless_there_is_another(
    run, started, environments, on_the_path, monkeypatch, tmp_path
):
    on_the_path.add("docker")
    monkeypatch.delenv(servers.THREADS, raising=False)
    bundles = has(tmp_path, "net", "1")
    run("serve", "net", "--bundles", bundles)
    (bundles / "net" / "1" / "export.json").write_text(json.dumps({"environment": {servers.THREADS: "1"}}))
    run("serve", "net", "--bundles", bundles)
    monkeypatch.setenv(servers.THREADS, "4")
    run("serve", "net", "--bundles", bundles)
    assert [environment.get(servers.THREADS) for environment in environments] == [None, "1", "4"]
    (bundles / "net" / "1" / "export.json").write_text(json.dumps({"environment": {"LD_PRELOAD": "net.so"}}))
    run("serve", "net", "--bundles", bundles)
    assert environments[-1].get("LD_PRELOAD") == os.environ.get("LD_PRELOAD"), (
        "it would run code of the bundle"
    )
    assert all(arguments[arguments.index(servers.THREADS) - 1] == "-e" for arguments in started)


@pytest.mark.parametrize("level", [None, "1"])
def test_a_server_says_its_errors_as_if_the_user_had_started_it(
    run, started, environments, on_the_path, monkeypatch, tmp_path, level
):
    """The command itself leaves out what TensorFlow says as it starts."""
    on_the_path.add("tensorflow_model_server")
    name = "TF_CPP_MIN_LOG_LEVEL"
    # What the command sets is taken back at the end of this test.
    monkeypatch.setenv(name, "1")
    if level is None:
        monkeypatch.delenv(name)
    run("serve", "net", "--bundles", has(tmp_path, "net", "1"))
    assert started
    assert os.environ[name] == level or level is None
    assert environments[-1].get(name) == level


def test_a_folder_that_is_no_version_is_passed_over(run, started, on_the_path, tmp_path):
    on_the_path.add("tensorflow_model_server")
    bundles = has(tmp_path, "net", "1", "1_old", "old")
    assert servers.newest(bundles / "net") == bundles / "net" / "1"
    assert run("serve", "net", "--bundles", bundles)[0] == 0
    assert servers.newest(has(tmp_path, "other", "1_old") / "other") is None


@pytest.fixture
def exported(monkeypatch):
    """What was exported, in place of exporting: what was loaded, and the folder."""
    exports = []

    def export(model, directory, *, name, version=1):
        exports.append((model, has(directory, name, str(version)) / name / str(version)))

    monkeypatch.setattr(zoo, "load", lambda name: name)
    monkeypatch.setattr(zoo, "export", export)
    return exports


@pytest.fixture
def trained(tmp_path):
    """The folder of a run that has the name of a preset with a published bundle."""
    folder = tmp_path / "runs" / "efficient_mnist"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").touch()
    write_arrays(folder / "best.safetensors", {"kernel": np.zeros(3, "float32")})
    return folder


def says(bundle, weights):
    """The bundle says that it has the weights of a file."""
    (bundle / "export.json").write_text(json.dumps({"weights": identity.of_file(weights)}))


def test_of_a_run_its_own_weights_are_served_not_the_published_bundle(
    run, started, exported, on_the_path, trained
):
    on_the_path.add("tensorflow_model_server")
    status, said, _ = run("serve", trained)
    own = trained / "bundles" / "efficient_mnist"
    assert status == 0
    assert exported == [(str(trained), own / "1")]
    assert started[0][-2:] == ["--model_name=efficient_mnist", f"--model_base_path={own}"]
    assert "/v1/models/efficient_mnist" in said


def test_a_run_with_other_weights_than_its_bundle_is_exported_again(
    run, started, exported, on_the_path, trained, tmp_path
):
    on_the_path.add("tensorflow_model_server")
    bundles = has(tmp_path / "bundles", "efficient_mnist", "9")
    says(bundles / "efficient_mnist" / "9", trained / "best.safetensors")
    assert run("serve", trained, "--bundles", bundles)[0] == 0
    assert exported == []
    write_arrays(trained / "best.safetensors", {"kernel": np.ones(3, "float32")})
    assert run("serve", trained, "--bundles", bundles)[0] == 0
    assert [folder.name for _, folder in exported] == ["10"]
    assert len(started) == 2


def test_a_bundle_of_a_run_is_not_served_as_the_preset_of_that_name(
    run, started, exported, on_the_path, trained, tmp_path
):
    on_the_path.add("tensorflow_model_server")
    bundles = has(tmp_path / "bundles", "efficient_mnist", "1")
    says(bundles / "efficient_mnist" / "1", trained / "best.safetensors")
    assert run("serve", "efficient_mnist", "--bundles", bundles)[0] == 0
    assert exported == []
    assert started[0][-1] == f"--model_base_path={servers.PUBLISHED / 'efficient_mnist'}"


def test_a_run_in_this_folder_has_the_folders_name(run, started, exported, on_the_path, trained, monkeypatch):
    on_the_path.add("tensorflow_model_server")
    monkeypatch.chdir(trained)
    run("serve", ".")
    assert "--model_name=efficient_mnist" in started[0]


@pytest.mark.parametrize("name", [".", "nowhere/efficient_mnist"])
def test_a_folder_that_is_no_run_is_refused(run, started, on_the_path, monkeypatch, tmp_path, name):
    on_the_path.add("tensorflow_model_server")
    monkeypatch.chdir(tmp_path)
    status, _, said = run("serve", name)
    assert status == 1
    assert "or the folder of one or of a run, is needed" in said
    assert started == []


def test_a_python_that_is_not_there_is_named(run, started, on_the_path, tmp_path):
    on_the_path.add("docker")
    status, _, said = run("serve", "net", "--bundles", has(tmp_path, "net", "1"), "--python", "/nonexistent")
    assert status == 1
    assert "--python" in said
    assert "/nonexistent" in said
    assert started == []


def test_batching_is_as_the_bundle_says(run, started, on_the_path, tmp_path):
    bundles = has(tmp_path, "net", "1", "2")
    for program, folder in (("docker", "/models/net/2"), ("tensorflow_model_server", bundles / "net" / "2")):
        on_the_path.add(program)
        run("serve", "net", "--bundles", bundles, "--batching")
        assert started[-1][0] == program
        assert started[-1][-2:] == [
            "--enable_batching=true", f"--batching_parameters_file={folder}/batching_params.pbtxt",
        ]  # fmt: skip


def test_kserve_is_not_started_where_batching_is_wanted(run, started, on_the_path, monkeypatch, tmp_path):
    monkeypatch.setattr(servers, "_has_kserve", lambda python: True)
    status, _, said = run("serve", "net", "--bundles", has(tmp_path, "net", "1"), "--batching")
    assert status == 1
    assert "KServe's does not batch" in said
    assert started == []


def test_a_published_bundle_is_served_where_there_is_no_other(run, started, on_the_path, tmp_path):
    on_the_path.add("tensorflow_model_server")
    run("serve", "efficient_mnist", "--bundles", tmp_path)
    assert started[0][-1] == f"--model_base_path={servers.PUBLISHED / 'efficient_mnist'}"


def test_without_a_server_one_line_says_what_was_looked_for(run, started, on_the_path, tmp_path):
    status, _, said = run("serve", "net", "--bundles", has(tmp_path, "net", "1"), "--python", sys.executable)
    assert status == 1
    assert "tensorflow_model_server" in said
    assert "pip install kserve tensorflow-cpu" in said
    assert started == []


def test_a_preset_without_weights_is_refused_in_words(run, started, on_the_path, tmp_path):
    on_the_path.add("docker")
    status, _, said = run("serve", "inverted_attention_cifar10", "--bundles", tmp_path)
    assert status == 1
    assert "no weights are published for 'inverted_attention_cifar10'" in said
    assert started == []


@pytest.mark.parametrize("folder", ["2026-11-27", "my run"])
def test_a_run_is_served_by_the_name_of_its_folder_or_by_another(
    folder, run, started, exported, on_the_path, trained, tmp_path
):
    on_the_path.add("tensorflow_model_server")
    path = trained.rename(tmp_path / folder)
    status, _, said = run("serve", path)
    if " " in folder:
        assert (status, exported) == (1, []), "before the model is loaded"
        assert "name must be letters" in said
    else:
        assert started.pop()[-2:] == [
            f"--model_name={folder}",
            f"--model_base_path={path / 'bundles' / folder}",
        ]
    assert run("serve", path, "--name", "mine")[0] == 0
    assert started.pop()[-2:] == ["--model_name=mine", f"--model_base_path={path / 'bundles' / 'mine'}"]


def test_a_preset_that_is_not_known_is_refused_before_anything_is_started(
    run, started, on_the_path, tmp_path
):
    # Without a server that would be the lesser reason.
    for server in (None, "docker"):
        on_the_path.add(server)
        status, out, said = run("serve", "efficient_mnst", "--bundles", tmp_path)
        assert status == 1
        assert "unknown preset 'efficient_mnst'; did you mean 'efficient_mnist'?" in said
        assert "exporting" not in out
        assert started == []

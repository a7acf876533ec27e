"""Weights are found in the nearest place that has exactly the published file, or are downloaded there."""

import collections
import concurrent.futures
import contextlib
import http.server
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import filelock
import pytest

from capszoo.zoo import downloading, locating
from capszoo.zoo.card import WeightFile
from capszoo.zoo.integrity import IntegrityError, sha256_of
from capszoo.zoo.locating import WeightsNotFound, find_file

DATA = bytes(range(256)) * 40


class Preset:
    """As much of a preset as has files."""

    name = "some_mnist"
    folder = None

    def __init__(self, sha256):
        self.card = collections.namedtuple("Card", "files")(
            {"weights.safetensors": WeightFile(sha256, len(DATA), "float16")}
        )


@pytest.fixture
def preset(tmp_path, monkeypatch):
    """A preset whose weights, `DATA`, are nowhere yet; the user's home is `tmp_path/home`."""
    (tmp_path / "data").write_bytes(DATA)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CAPSZOO_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CAPSZOO_RELEASE_URL", raising=False)
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path / "package")
    monkeypatch.setattr(
        locating, "large_weights_folders", lambda: [tmp_path / "second", tmp_path / "checkout"]
    )
    return Preset(sha256_of(tmp_path / "data"))


def put(folder, data=DATA):
    """Weights of the preset in one of its places."""
    path = folder / "some_mnist" / "weights.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def cached(tmp_path, preset):
    """Where the cache keeps them."""
    return tmp_path / "cache" / "weights" / f"{preset.card.files['weights.safetensors'].sha256}.safetensors"


def find(preset):
    """Without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return find_file(preset, "weights.safetensors")


class Server(http.server.ThreadingHTTPServer):
    """Gives what `answers` has for the first, second, ... request, the last one from then on; notes paths."""

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.paths, self.lock = answers, [], threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with self.server.lock:
            self.server.paths.append(self.path)
            answers = self.server.answers
            answer = answers[min(len(self.server.paths), len(answers)) - 1]
        with contextlib.suppress(ConnectionError):
            answer(self)

    def log_message(self, *_): ...


def status(code):
    return lambda handler: handler.send_error(code)


def body(data, slowly=0.0):
    """Answers with `data`, without saying how long they are; with a pause after every byte."""

    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        if slowly:
            for i in range(len(data)):
                handler.wfile.write(data[i : i + 1])
                time.sleep(slowly)
        else:
            handler.wfile.write(data)

    return answer


@pytest.fixture
def serve(monkeypatch):
    """`serve(*answers)`: a server at CAPSZOO_RELEASE_URL, on the loopback address only."""
    with contextlib.ExitStack() as stack:

        def start(*answers, user=""):
            server = Server(*answers)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            monkeypatch.setenv("CAPSZOO_RELEASE_URL", f"http://{user}127.0.0.1:{server.server_port}/files/")
            return server

        yield start


@pytest.mark.parametrize("place", ["package", "second", "checkout"])
def test_weights_lie_in_the_package_in_the_second_distribution_or_in_a_checkout(preset, tmp_path, place):
    path = put(tmp_path / place)
    assert find(preset) == path


def test_nearer_places_come_first(preset, tmp_path):
    for place in ("checkout", "second", "package"):
        path = put(tmp_path / place)
        assert find(preset) == path
    cached(tmp_path, preset).parent.mkdir(parents=True)
    cached(tmp_path, preset).write_bytes(DATA)
    assert find(preset) == cached(tmp_path, preset)


def test_the_second_distribution_is_found_where_it_is_installed(tmp_path, monkeypatch):
    (tmp_path / "capszoo_weights").mkdir()
    (tmp_path / "capszoo_weights" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert locating.large_weights_folders()[0] == tmp_path / "capszoo_weights"


def test_weights_that_are_nowhere_are_an_error_that_says_where_was_looked(preset, tmp_path):
    with pytest.raises(WeightsNotFound) as error:
        find(preset)
    for place in ("package", "second", "checkout"):
        assert str(tmp_path / place / "some_mnist" / "weights.safetensors") in str(error.value)
    assert str(cached(tmp_path, preset)) in str(error.value)
    assert "pip install capszoo-weights" in str(error.value)
    assert "CAPSZOO_RELEASE_URL" in str(error.value)


def test_a_card_without_the_file_is_said_to_be_one_of_a_run(preset):
    with pytest.raises(WeightsNotFound, match=r"knows no best\.safetensors, but weights\.safetensors"):
        find_file(preset, "best.safetensors")


def test_another_versions_file_in_the_cache_is_no_hindrance(preset, tmp_path):
    for name in (f"{'0' * 64}.safetensors", "some_mnist"):
        (tmp_path / "cache" / "weights" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / "weights" / name).write_bytes(b"another version")
    path = put(tmp_path / "package")
    assert find(preset) == path


@pytest.mark.parametrize("wrong", [b"", DATA[:-1], DATA[:-1] + b"x", DATA + b"x"])
def test_a_wrong_file_in_the_cache_is_set_aside_with_a_warning(preset, tmp_path, wrong):
    path, stale = put(tmp_path / "package"), cached(tmp_path, preset)
    stale.parent.mkdir(parents=True)
    stale.write_bytes(wrong)
    with pytest.warns(
        UserWarning, match=rf"expected\. Received.*set aside as {stale}\.wrong; {path} is used"
    ):
        assert find_file(preset, "weights.safetensors") == path
    assert Path(f"{stale}.wrong").read_bytes() == wrong
    assert find(preset) == path


def test_a_wrong_file_in_the_package_is_passed_over_with_a_warning(preset, tmp_path):
    wrong, path = put(tmp_path / "package", DATA[:-1]), put(tmp_path / "second")
    with pytest.warns(UserWarning, match=rf"{wrong}: {len(DATA)} bytes expected.*; {path} is used instead"):
        assert find_file(preset, "weights.safetensors") == path
    assert wrong.is_file()


def test_where_only_wrong_files_are_it_is_an_error(preset, tmp_path):
    put(tmp_path / "package", DATA[:-1])
    put(tmp_path / "second", DATA[::-1])
    with pytest.raises(IntegrityError) as error:
        find(preset)
    assert "package" in str(error.value)
    assert "bytes expected" in str(error.value)
    assert "second" in str(error.value)
    assert "sha256" in str(error.value)


def test_the_home_of_the_user_is_expanded(preset, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSZOO_HOME", "~/zoo")
    assert locating.cache_folder() == tmp_path / "home" / "zoo"


def test_a_download_is_kept_under_its_hash_and_made_once(preset, tmp_path, serve):
    server = serve(body(DATA))
    assert find(preset) == cached(tmp_path, preset)
    assert find(preset).read_bytes() == DATA
    assert server.paths == ["/files/some_mnist/weights.safetensors"]


@pytest.mark.parametrize("wrong", [b"not it", DATA[:-1], DATA[::-1], DATA + b"x"])
def test_a_download_that_is_another_file_is_an_error_and_not_kept(preset, tmp_path, serve, wrong):
    serve(body(wrong))
    with pytest.raises(IntegrityError, match=r"is not the published file: .*expected"):
        find(preset)
    assert [path.suffix for path in cached(tmp_path, preset).parent.iterdir()] in ([".lock"], [])


def test_a_download_stops_at_the_size_on_the_card(preset, serve):
    sent = []

    def endless(handler):
        body(b"")(handler)
        while len(sent) < 10_000:
            handler.wfile.write(bytes(2**16))
            sent.append(2**16)

    serve(endless)
    with pytest.raises(IntegrityError, match=f"{len(DATA)} bytes expected. Received: more"):
        find(preset)
    assert sum(sent) < 2**26


def test_a_download_has_a_deadline_in_all(preset, serve, monkeypatch):
    monkeypatch.setattr(downloading, "LEAST_SECONDS", 0.3)
    serve(body(DATA, slowly=0.02))
    start = time.monotonic()
    with pytest.raises(WeightsNotFound, match=rf"of {len(DATA)} bytes took too long"):
        find(preset)
    assert time.monotonic() - start < 10


def test_a_download_that_another_process_does_not_end_is_not_waited_for_for_ever(
    preset, serve, tmp_path, monkeypatch
):
    monkeypatch.setattr(downloading, "LEAST_SECONDS", 0.1)
    server = serve(body(DATA))
    cached(tmp_path, preset).parent.mkdir(parents=True)
    with filelock.FileLock(f"{cached(tmp_path, preset)}.lock"), pytest.raises(WeightsNotFound) as error:
        find(preset)
    assert "another process has been at it for too long" in str(error.value)
    assert not server.paths


def test_an_overloaded_server_is_asked_again_after_a_pause(preset, serve):
    server = serve(status(503), status(502), body(DATA))
    start = time.monotonic()
    assert find(preset).read_bytes() == DATA
    assert len(server.paths) == 3
    assert time.monotonic() - start > 0.9


def test_a_file_that_the_server_does_not_have_is_not_asked_for_again(preset, serve):
    server = serve(status(404))
    with pytest.raises(WeightsNotFound, match=r"could not be downloaded: HTTP 404 Not Found"):
        find(preset)
    assert len(server.paths) == 1


def errors_of(function):
    """All that an error shows: its text, and that of its causes which a traceback prints."""
    import traceback

    with pytest.raises((WeightsNotFound, IntegrityError)) as error:
        function()
    return "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    "answer", [status(404), status(401), body(b"wrong"), lambda handler: handler.wfile.write(b"no HTTP\r\n")]
)
def test_a_password_in_the_url_is_in_no_error(preset, serve, answer):
    serve(answer, user="anna:se%23cret@")
    shown = errors_of(lambda: find(preset))
    assert "//***@127.0.0.1" in shown
    assert "se%23cret" not in shown
    assert "anna" not in shown


@pytest.mark.parametrize(
    "url",
    ["http://anna:q7xw9z@127.0.0.1:1/", "http://anna:q7x/w9z@127.0.0.1", "ftp://anna:q7xw9z@127.0.0.1/"],
)
def test_a_password_in_a_url_that_cannot_be_reached_is_in_no_error(preset, monkeypatch, url):
    monkeypatch.setenv("CAPSZOO_RELEASE_URL", url)
    shown = errors_of(lambda: find(preset))
    assert "could not be downloaded" in shown
    assert "anna" not in shown
    assert "q7x" not in shown
    assert "w9z" not in shown


def test_twenty_at_a_time_make_one_request(preset, serve, tmp_path):
    server = serve(body(DATA))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        paths = set(pool.map(lambda _: find_file(preset, "weights.safetensors"), range(20)))
    assert paths == {cached(tmp_path, preset)}
    assert len(server.paths) == 1


@pytest.mark.slow
def test_twenty_processes_make_one_request(preset, serve, tmp_path):
    server = serve(body(DATA))
    code = """
import os, sys
from pathlib import Path
from capszoo.zoo.downloading import download
download(os.environ["CAPSZOO_RELEASE_URL"], Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
"""
    target = cached(tmp_path, preset)
    command = [sys.executable, "-c", code, target, target.stem, str(len(DATA))]
    processes = [subprocess.Popen(command, env=dict(os.environ)) for _ in range(20)]
    assert [process.wait() for process in processes] == [0] * 20
    assert target.read_bytes() == DATA
    assert len(server.paths) == 1


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(preset, serve, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where a folder should be")
    serve(body(DATA))
    with pytest.raises(WeightsNotFound, match=str(tmp_path / "cache")):
        find(preset)

"""The kit's load script says what a server answers, and counts only what was answered."""

import base64
import json
import math
import time

import pytest
from exporting.requests import client, toy_server

GOOD, NO_PICTURE = b"a picture", b"no picture"


@pytest.fixture(scope="module")
def script():
    return client("load")


def pictures(body):
    """What a request asks about."""
    request = json.loads(body)
    assert request["signature_name"] == "predict_bytes"
    return [base64.b64decode(row["b64"], validate=True) for row in request["instances"]]


def loaded(script, answer, clients, seconds, garbage=False):
    with toy_server(answer) as url:
        return script.load(f"{url}/v1/models/net:predict", script.requests([GOOD]), clients, seconds, garbage)


def test_the_rate_is_over_the_time_until_the_last_answer(script):
    def slow(path, body):
        time.sleep(0.5)
        return 200, {}

    seen = loaded(script, slow, clients=4, seconds=0.1)
    assert 0 < seen["requests"] <= 8, "each of four clients asked once, and was answered after half a second"
    assert 500 <= seen["p50"] <= seen["p99"]


def test_requests_that_fail_are_counted_apart(script):
    seen = loaded(script, lambda path, body: (503, {}), clients=2, seconds=0.1)
    assert seen["requests"] == 0
    assert math.isnan(seen["p50"])
    assert math.isnan(seen["p99"])
    assert seen["failed"] > 0


def test_garbage_is_a_request_that_only_the_model_can_refuse(script):
    asked = []

    def answer(path, body):
        (picture,) = pictures(body)
        asked.append(picture)
        time.sleep(0.01)
        return (400 if picture == NO_PICTURE else 200), {}

    seen = loaded(script, answer, clients=10, seconds=0.3, garbage=True)
    assert set(asked) == {GOOD, NO_PICTURE}
    assert (seen["failed"], seen["accepted"]) == (0, 0)
    assert seen["requests"] > 0


def test_garbage_that_is_accepted_is_told(script):
    def answer(path, body):
        time.sleep(0.01)
        return (200 if pictures(body) == [NO_PICTURE] else 400), {}

    seen = loaded(script, answer, clients=10, seconds=0.3, garbage=True)
    assert seen["requests"] == 0
    assert seen["failed"] > seen["accepted"] > 0


@pytest.mark.parametrize("url", ["http://192.0.2.1:8501/v1/models/net", "localhost:8501/v1/models/net"])
def test_another_machine_is_refused_in_one_line_before_the_table(script, url, monkeypatch, capsys, tmp_path):
    (tmp_path / "0.png").write_bytes(GOOD)
    monkeypatch.setattr("sys.argv", ["load.py", str(tmp_path / "0.png"), "--url", url])
    with pytest.raises(SystemExit, match=f"^error: load is put on this machine only, http://.*{url}"):
        script.main()
    assert capsys.readouterr().out == ""


def test_the_table_says_how_many_failed(script, monkeypatch, capsys, tmp_path):
    (tmp_path / "0.png").write_bytes(GOOD)
    with toy_server(lambda path, body: (503, {})) as url:
        options = ["--url", f"{url}/v1/models/net", "--seconds", "0.1", "--concurrency", "1"]
        monkeypatch.setattr("sys.argv", ["load.py", str(tmp_path / "0.png"), *options])
        script.main()
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-3:] == ["failed", "garbage", "accepted"]
    assert int(row.split()[5]) > 0

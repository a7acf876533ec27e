"""A real model server on a bundle answers as TensorFlow Serving's public description of REST says.

KServe's model server, in an environment of its own without capszoo, started by `capszoo serve` on the bundle of each
classifying preset: the newest in the folder that `CAPSZOO_BUNDLES` names, such as dist/models; else the published one;
else a new export. Where `CAPSZOO_SERVER` is an address, such as http://localhost:8501, the TensorFlow Serving that
listens there is asked instead, for the presets that it serves; its gRPC is at `CAPSZOO_SERVER_GRPC`.
"""

import base64
import json
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from serving.servers import TensorFlowServing

# Numbers in a huge batch: 2,048 digits, or 87 stereo pairs; either is more than a SavedModel computes at once.
HUGE = 2048 * 28 * 28

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(server):
    """Images, and what the bundle says of them in this process."""
    return server.images, said(server, server.images)


def said(server, images):
    answer = server.signatures["serving_default"](images=tf.constant(images))
    return {name: value.numpy() for name, value in answer.items()}


def of_columns(outputs, names):
    """Values by name; where a model has one output, an answer leaves its name out."""
    if len(names) == 1:
        return dict.fromkeys(names, outputs)
    assert set(outputs) == set(names)
    return outputs


def of_rows(rows, names):
    """The same, of the rows of an answer."""
    if len(names) == 1:
        return dict.fromkeys(names, rows)
    assert all(set(row) == set(names) for row in rows)
    return {name: [row[name] for row in rows] for name in names}


def test_it_is_available_and_says_what_it_takes(server):
    assert server.available()
    assert server.input_shape() == [-1, *server.report["image_shape"]]


def test_a_model_that_it_has_not_is_an_error_object(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server.url}/v1/models/nothing", timeout=60)
    assert refused.value.code == 404
    assert json.load(refused.value)["error"]


def test_rows_get_rows(server, expected):
    images, wanted = expected
    for rows in (images.tolist(), [{"images": image.tolist()} for image in images]):
        status, answer = server.post({"signature_name": "serving_default", "instances": rows})
        assert status == 200
        for name, values in of_rows(answer["predictions"], wanted).items():
            server.close(values, wanted[name], name)


def test_columns_get_columns(server, expected):
    images, wanted = expected
    for columns in (images.tolist(), {"images": images.tolist()}):
        status, answer = server.post({"inputs": columns})
        assert status == 200
        for name, values in of_columns(answer["outputs"], wanted).items():
            server.close(values, wanted[name], name)


def test_grpc_says_the_same(server, expected, tmp_path):
    images, wanted = expected
    answer = server.over_grpc(images, tmp_path)
    for name, values in wanted.items():
        server.close(np.reshape(answer[name], values.shape), values, name)


@pytest.fixture
def tensorflow_serving(server):
    """The gRPC of KServe's server is another one, without a choice of signatures."""
    if not isinstance(server, TensorFlowServing):
        pytest.skip("no TensorFlow Serving")
    return server


def test_grpc_reads_pictures(tensorflow_serving):
    server = tensorflow_serving
    answer = server.rpc("predict_bytes", image_bytes=server.pictures)
    local = server.signatures["predict_bytes"](image_bytes=tf.constant(server.pictures))
    assert set(answer) == set(local)
    for name, values in local.items():
        server.close(answer[name], values, name)


def test_grpc_refuses_another_shape_and_the_server_goes_on(tensorflow_serving, expected):
    images, _ = expected
    with pytest.raises(grpc.RpcError) as refused:
        tensorflow_serving.rpc("serving_default", images=images[:, :, :-1])
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details()
    assert tensorflow_serving.rpc("serving_default", images=images)


def test_pictures_in_base64_are_read(server):
    rows = [{"b64": base64.b64encode(picture).decode()} for picture in server.pictures]
    status, answer = server.post({"signature_name": "predict_bytes", "instances": rows})
    assert status == 200
    local = server.signatures["predict_bytes"](image_bytes=tf.constant(server.pictures))
    server.close(of_rows(answer["predictions"], local)["scores"], local["scores"], "scores")


def image(shape, value=0.5):
    return np.full(shape, value).tolist()


REFUSED = {
    "values above one": lambda shape: {"instances": [image(shape, 2.0)]},
    "a NaN among others": lambda shape: (
        b'{"instances": [' + json.dumps(image(shape)).replace("0.5", "NaN", 1).encode() + b"]}"
    ),
    "another shape": lambda shape: {"instances": [image((shape[0], shape[1] - 1, shape[2]))]},
    "another rank": lambda shape: {"instances": [image(shape[:2])]},
    "rows of several shapes": lambda shape: {"instances": [image(shape), image((2, 2, shape[2]))]},
    "words": lambda shape: {"instances": ["seven"]},
    "an empty batch": lambda shape: {"instances": []},
    "an empty column": lambda shape: {"inputs": []},
    "another input": lambda shape: {"inputs": {"pictures": [image(shape)]}},
    "no such signature": lambda shape: {"signature_name": "nothing", "instances": [image(shape)]},
    "a signature that is no name": lambda shape: {"signature_name": ["a"], "instances": [image(shape)]},
    "strings for numbers": lambda shape: {"instances": [image(shape, "0.5")]},
    "a number of 400 digits": lambda shape: {"instances": [image(shape, 10**400)]},
    "lists in lists in lists": lambda shape: b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "rows and columns": lambda shape: {"instances": [image(shape)], "inputs": [image(shape)]},
    "neither": lambda shape: {},
    "no object": lambda shape: [],
    "no JSON": lambda shape: b"\x00\xff{",
    "no base64": lambda shape: {"signature_name": "predict_bytes", "instances": [{"b64": "!"}]},
    "no picture": lambda shape: {"signature_name": "predict_bytes", "instances": [{"b64": "AAAA"}]},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_an_error_object_and_the_server_goes_on(server, what):
    shape = server.report["image_shape"]
    # Clients need not say that it is JSON: `curl --data` says that it is a form.
    for kind in ("application/json", "application/x-www-form-urlencoded"):
        status, answer = server.post(REFUSED[what](shape), kind)
        assert 400 <= status < 500, answer
        assert isinstance(answer["error"], str)
        assert answer["error"]
    assert server.post({"instances": [image(shape)]})[0] == 200


@pytest.mark.parametrize(
    ("data", "size"), [(0.5, -1), ("0.5", 0), ("seven", 0), (2.0, 0), (None, 0)], ids=str
)
def test_what_is_wrong_over_the_second_protocol_is_the_clients_fault(server, data, size):
    if not hasattr(server, "post_v2"):
        pytest.skip("TensorFlow Serving has no second protocol")
    shape = [1, *server.report["image_shape"]]
    status, answer = server.post_v2(shape=shape, data=[data] * (np.prod(shape) + size))
    assert 400 <= status < 500, answer
    assert answer["error"]
    status, answer = server.post_v2(shape=shape, data=[0.5] * np.prod(shape))
    assert status == 200, answer


def test_outputs_that_are_named_over_the_second_protocol_are_those_answered(server):
    if not hasattr(server, "post_v2"):
        pytest.skip("TensorFlow Serving has no second protocol")
    shape = [1, *server.report["image_shape"]]
    status, answer = server.post_v2(["scores"], shape=shape, data=[0.5] * np.prod(shape))
    assert (status, [part["name"] for part in answer["outputs"]]) == (200, ["scores"])
    status, answer = server.post_v2(["nothing"], shape=shape, data=[0.5] * np.prod(shape))
    assert 400 <= status < 500, answer
    assert "no outputs ['nothing']" in answer["error"]


def test_a_picture_as_base64_in_lines_is_one(server):
    picture = next((server.bundle / "assets.extra" / "examples").glob("*.png")).read_bytes()
    instances = [{"b64": encode(picture).decode()} for encode in (base64.b64encode, base64.encodebytes)]
    status, answer = server.post({"signature_name": "predict_bytes", "instances": instances})
    assert status == 200, answer
    # The rows of a batch may be rounded otherwise.
    scores = of_rows(answer["predictions"], server.signatures["predict_bytes"].structured_outputs)["scores"]
    server.close(scores[1], np.asarray(scores[0]), "scores")


def test_a_huge_batch_is_answered_row_by_row(server, expected):
    images, wanted = expected
    count = HUGE // images[0].size
    status, answer = server.post({"inputs": np.resize(images, (count, *images.shape[1:])).tolist()})
    assert status == 200
    scores = np.asarray(of_columns(answer["outputs"], wanted)["scores"])
    server.close(scores, np.resize(wanted["scores"], scores.shape), "scores")


def test_clients_at_the_same_time_get_their_own_answers(server, expected):
    images, wanted = expected
    answers = {}

    def ask(number):
        answers[number] = server.post({"instances": [images[number % 3].tolist()]})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (status, answer) in answers.items():
        assert status == 200
        (scores,) = of_rows(answer["predictions"], wanted)["scores"]
        server.close(scores, wanted["scores"][number % 3], "scores")


def test_under_load_good_requests_are_answered_beside_garbage(server, load):
    bodies = load.requests(server.pictures)
    for clients in (1, 8, 32):
        garbage = clients > 8
        seen = load.load(f"{server.model}:predict", bodies, clients, 2.0, garbage)
        print(server.name, clients, seen)
        assert seen["accepted"] == 0
        # Garbage fails the requests that a server with batching has merged it with.
        assert seen["failed"] == 0 or (garbage and server.may_merge)
        assert 0 < seen["p50"] <= seen["p99"] < 20_000
        assert seen["requests"] > 1
    with pytest.raises(ValueError, match="this machine only"):
        load.load("http://example.org/v1/models/x", bodies, 1, 1.0)

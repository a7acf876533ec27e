"""Scores of pictures over TensorFlow Serving's REST; only the standard library.

python predict_rest.py picture.png ... [--url http://localhost:8501/v1/models/efficient_mnist]
A stereo pair is one picture, the left view in its left half.
"""

import argparse
import base64
import json
import urllib.error
import urllib.request
from pathlib import Path


def predict(url, pictures, timeout=10.0):
    """`[{"scores": [classes], "poses": [classes][...]}, ...]`, one per encoded picture.

    A network with one output, such as `self_routing_smallnorb`, has no names there: `[[classes], ...]`.
    Errors: `RuntimeError` with the server's own words where it refuses the request.
    """
    instances = [{"b64": base64.b64encode(picture).decode()} for picture in pictures]
    body = json.dumps({"signature_name": "predict_bytes", "instances": instances}).encode()
    request = urllib.request.Request(f"{url}:predict", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)["predictions"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"the server answered {error.code}: {error.read().decode()}") from error


def main():
    """Prints the most active class of each picture and its score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("--url", default="http://localhost:8501/v1/models/efficient_mnist")
    options = parser.parse_args()
    try:
        answers = predict(options.url, [path.read_bytes() for path in options.pictures])
    except (OSError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from error
    for path, answer in zip(options.pictures, answers, strict=True):
        scores = answer.get("scores") if isinstance(answer, dict) else answer
        if not scores or isinstance(scores[0], list):
            raise SystemExit("this network names no classes: its answer has no scores")
        print(f"{path}: class {scores.index(max(scores))}, score {max(scores):.3f}")


if __name__ == "__main__":
    main()

"""Latency and throughput of a server under load, also beside garbage; only the standard library.

python load.py picture.png ... [--url http://localhost:8501/v1/models/efficient_mnist]
  [--seconds 5] [--concurrency 1 8 32]
Prints, for each number of clients, answered requests per second, their p50 and p99 in milliseconds, and how many
failed: alone, and where one client in ten sends garbage, which must be refused. It talks to this machine only, and
stops by itself.
"""

import argparse
import base64
import http.client
import json
import math
import threading
import time
from pathlib import Path
from urllib.parse import urlparse

HOSTS = ("localhost", "127.0.0.1", "::1")
GARBAGE_EVERY = 10


def load(url, bodies, clients, seconds, garbage=False):
    """What `clients` at a time see of a server for `seconds`.

    where:
      url: what is asked, e.g. http://localhost:8501/v1/models/efficient_mnist:predict.
      bodies: requests, JSON; each client sends one after the other, round and round.
      garbage: whether each tenth client sends what is no picture, instead.

    Returns `{"requests": per second, "p50", "p99": milliseconds, "failed", "accepted": garbage}`; the first three are
    of good requests that were answered, "failed" counts the others.
    Errors: `ValueError` for another machine than this.
    """
    _require_local(url)
    latencies, wrong = [], {"failed": 0, "accepted": 0}
    # Only the model can tell that this is no picture: until then it may share a batch with good requests.
    (no_picture,) = requests([b"no picture"])
    began = time.monotonic()

    def client(number):
        bad = garbage and number % GARBAGE_EVERY == GARBAGE_EVERY - 1
        turn, mine, mistakes = number, [], 0
        while time.monotonic() < began + seconds:
            started = time.monotonic()
            answered = _ask(url, no_picture if bad else bodies[turn % len(bodies)]) == 200
            if answered:
                mine.append(1000.0 * (time.monotonic() - started))
            mistakes += answered == bad
            turn += 1
        # One after the other: lists and numbers are shared by the clients.
        with lock:
            wrong["accepted" if bad else "failed"] += mistakes
            latencies.extend([] if bad else mine)

    lock = threading.Lock()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The last answers come after `seconds`.
    elapsed = time.monotonic() - began
    latencies.sort()
    return {
        "requests": len(latencies) / elapsed,
        "p50": _percentile(latencies, 0.5),
        "p99": _percentile(latencies, 0.99),
        **wrong,
    }


def _require_local(url):
    if urlparse(url).hostname not in HOSTS:
        raise ValueError(f"load is put on this machine only, http:// and {', '.join(HOSTS)}. Received: {url}")


def _percentile(ordered, share):
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def _ask(url, body):
    """The status of the answer; 0 where there is none."""
    address = urlparse(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        connection.request("POST", address.path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def requests(pictures):
    """One request for each encoded picture."""
    return [
        json.dumps(
            {
                "signature_name": "predict_bytes",
                "instances": [{"b64": base64.b64encode(picture).decode()}],
            }
        ).encode()
        for picture in pictures
    ]


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("--url", default="http://localhost:8501/v1/models/efficient_mnist")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args()
    try:
        _require_local(options.url)
        bodies = requests([path.read_bytes() for path in options.pictures])
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    print("clients  garbage  requests/s   p50 ms   p99 ms  failed  garbage accepted")
    for clients in options.concurrency:
        for garbage in (False, True) if clients >= GARBAGE_EVERY else (False,):
            seen = load(f"{options.url}:predict", bodies, clients, options.seconds, garbage)
            print(
                f"{clients:7}  {'1 in 10' if garbage else 'none':>7}  {seen['requests']:10.1f}  {seen['p50']:7.1f}"
                f"  {seen['p99']:7.1f}  {seen['failed']:6}  {seen['accepted']:16}"
            )


if __name__ == "__main__":
    main()

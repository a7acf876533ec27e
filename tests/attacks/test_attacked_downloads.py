"""Downloads, from a server on the loopback address that does what it likes."""

import hashlib
import http.server
import threading

import pytest

from capszoo.zoo import downloading
from capszoo.zoo.downloading import download
from capszoo.zoo.integrity import IntegrityError

GOOD = bytes(range(256)) * 40

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


class Liar(http.server.BaseHTTPRequestHandler):
    """Answers as the path says."""

    def do_GET(self):
        kind = self.path.strip("/")
        if kind.isdecimal():
            self.send_error(int(kind))
            return
        if kind == "loop":
            self.send_response(302)
            self.send_header("Location", "/loop")
            self.end_headers()
            return
        body = {"short": GOOD[:-1], "long": GOOD + b"x", "other": GOOD[::-1], "empty": b""}.get(kind, GOOD)
        self.send_response(200)
        claimed = {"claims": 10**12, "negative": -1, "cut": len(GOOD) + 5}.get(kind, len(body))
        if kind != "endless":
            self.send_header("Content-Length", str(claimed))
        if kind == "gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        try:
            self.wfile.write(body)
            while kind == "endless":
                self.wfile.write(GOOD)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_servers_that_lie(attacks, server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloading, "LEAST_SECONDS", 5)
    digest, target = hashlib.sha256(GOOD).hexdigest(), tmp_path / "cache" / "file"
    kinds = ["short", "long", "other", "empty", "endless", "loop", "400", "403", "404", "418", "500", "503"]
    # All bytes come, and more are promised or another encoding is claimed: the file is the published one.
    kinds_of_good = ["claims", "negative", "cut", "gzip", "good"]
    for kind in kinds + kinds_of_good:
        target.unlink(missing_ok=True)
        attacks(
            kind,
            lambda kind=kind: download(f"http://name:secret@{server}/{kind}", target, digest, len(GOOD)),
            IntegrityError,
            OSError,
            harmless=lambda _, kind=kind: kind in kinds_of_good and target.read_bytes() == GOOD,
        )
        left = {path.name for path in target.parent.iterdir()} - {"file", "file.lock"}
        attacks(f"what {kind} leaves", lambda left=left: left, harmless=lambda left: not left)


def test_addresses_that_are_none(attacks, tmp_path):
    urls = [
        "",
        "file:///etc/passwd",
        "ftp://127.0.0.1/a",
        "http://",
        "http://127.0.0.1:1/a",
        "http://[",
        "\0",
    ]
    for url in urls:
        attacks(url, lambda url=url: download(url, tmp_path / "file", "0" * 64, 10), IntegrityError, OSError)

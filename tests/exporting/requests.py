"""What clients send to a bundle, and the scores that come back; a server that answers them in this process."""

import contextlib
import http.server
import importlib.util
import io
import json
import sys
import threading
from pathlib import Path

import tensorflow as tf
from PIL import Image

CLIENTS = Path(__file__).parents[2] / "export" / "clients"
# Clients that read pictures import what is beside them.
sys.path.append(str(CLIENTS))


def encoded(pixels, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def predict_bytes(signatures, *pictures):
    return signatures["predict_bytes"](image_bytes=tf.constant(pictures))["scores"].numpy()


def scores_of(signatures, images):
    return signatures["serving_default"](images=tf.constant(images, tf.float32))["scores"].numpy()


def client(name):
    specification = importlib.util.spec_from_file_location(name, CLIENTS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@contextlib.contextmanager
def toy_server(answer):
    """The address of a server of HTTP; `answer` makes status and JSON of path and body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            status, said = answer(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()

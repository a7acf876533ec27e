"""Downloads: once for all processes, no larger and no slower than they may be, and exactly what was asked for."""

import re
import time
from pathlib import Path

import filelock
import requests
import urllib3

from capszoo.training.files import replacing
from capszoo.zoo.integrity import IntegrityError, verify_file

# Seconds to connect, and between two answers of a server.
TIMEOUT = (10, 30)
# A file has this many seconds, and another one for so many bytes.
LEAST_SECONDS, BYTES_A_SECOND = 60, 50_000
# A server that is overloaded is asked again after 0, 1, 2 and 4 seconds.
AGAIN = urllib3.Retry(
    total=None,
    connect=0,
    read=0,
    other=0,
    status=4,
    status_forcelist=(500, 502, 503, 504),
    backoff_factor=0.5,
    raise_on_status=False,
    respect_retry_after_header=False,
)


def download(url: str, target: Path, sha256: str, size: int):
    """Downloads `url` to `target`, unless it is there; of several processes one does it, and the others wait.

    where:
      sha256, size: of the file; a longer one is not read to its end.

    Errors: `IntegrityError` for another file, which is not kept; `OSError` for a server or a folder that fails, or
    takes longer than the file's size allows. Neither shows a password in `url`.
    """
    shown = re.sub(r"//.*@", "//***@", url)
    seconds = LEAST_SECONDS + size / BYTES_A_SECOND
    # Errors are raised without their cause, whose text may repeat the URL.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{target}.lock", timeout=seconds):
            if not _complete(target, sha256, size):
                with replacing(target) as temporary:
                    _write(url, temporary, size, time.monotonic() + seconds)
                    verify_file(temporary, sha256, size)
    except IntegrityError as error:
        raise IntegrityError(f"{shown} is not the published file: {error}") from None
    except filelock.Timeout:
        raise OSError(
            f"{shown} could not be downloaded: another process has been at it for too long"
        ) from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise OSError(f"{shown} could not be downloaded: {_reason(error)}") from None
    except OSError as error:
        raise OSError(f"{shown} could not be downloaded: {error}") from None


def _complete(path, sha256, size):
    if not path.is_file():
        return False
    try:
        verify_file(path, sha256, size)
    except IntegrityError:
        return False
    return True


def _write(url, path, size, deadline):
    with requests.Session() as session, path.open("wb") as file:
        for scheme in ("http://", "https://"):
            session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=AGAIN))
        with session.get(
            url, stream=True, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}
        ) as response:
            response.raise_for_status()
            received = 0
            # `read1` returns what has come: waiting for whole blocks, a slow server would outlast any deadline.
            while block := response.raw.read1(2**16):
                received += len(block)
                if received > size:
                    raise IntegrityError(f"{size} bytes expected. Received: more")
                if time.monotonic() > deadline:
                    raise OSError(f"{received} of {size} bytes took too long")
                file.write(block)


def _reason(error):
    """What went wrong, without the libraries' own words, which repeat the URL and its password."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code} {response.reason}"
    cause = error.args[0] if error.args else error
    return type(getattr(cause, "reason", None) or error).__name__

"""The site is built without a warning, and every page opens in a browser without an error and without a network."""

import functools
import html.parser
import http.server
import importlib
import re
import subprocess
import threading
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

RESOURCES = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(site):
    return sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))


class Links(html.parser.HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.resources, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if attrs.get(RESOURCES.get(tag)):
            self.resources.append(attrs[RESOURCES[tag]])


def parsed(site, pages):
    return {page: Links((site / page).read_text(encoding="utf-8")) for page in pages}


def test_every_link_leads_to_a_place_that_exists(site, pages):
    found = parsed(site, pages)
    for page, content in found.items():
        for link in content.links + content.resources:
            if urlparse(link).scheme:
                continue
            target, place = urldefrag(urljoin(f"/{page}", link))
            target = unquote(target).lstrip("/") or page
            assert (site / target).is_file(), f"{page}: {link}"
            if place and target in found:
                # Material's own anchor of the top of a page.
                assert unquote(place) in found[target].anchors | {"__top"}, f"{page}: {link}"


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for page, content in parsed(site, pages).items():
        foreign = [resource for resource in content.resources if urlparse(resource).netloc]
        assert not foreign, page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), (
            sheet
        )


def test_every_public_name_has_its_place_in_the_api(site):
    api = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    anchors = Links(api).anchors
    for module in ("routing", "layers", "losses", "models", "data", "visualize", "exporting", "benchmarking"):
        package = importlib.import_module(f"capszoo.{module}")
        for name in package.__all__:
            if callable(getattr(package, name)):
                # A function that has the name of its file stands under the file's.
                assert {f"capszoo.{module}.{name}", f"capszoo.{module}.{name}.{name}"} & anchors, name


@pytest.fixture(scope="module")
def browse(site, browser, tmp_path_factory):
    """What goes wrong in a browser that opens a page: what its console says, and requests that are refused."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "site").symlink_to(site)
    (folder / "broken.html").write_text("<img src=nowhere.png><script>undefined_name()</script>")
    (folder / "foreign.html").write_text("<script src='https://example.org/x.js'></script>")

    refused = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        """Serves the site, and is the proxy for everything else, which it refuses."""

        def log_request(self, code="-", size="-"):
            if int(code) >= 400:
                refused.append(f"{int(code)} {self.command} {self.path}")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"

    def errors(page):
        refused.clear()
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
            "--virtual-time-budget=4000", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={folder / 'profile'}", f"--proxy-server={address}", f"http://{address}/{page}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "</body>" in done.stdout, page
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        # Chromium asks for its own news now and then.
        own = ("google", "gvt1", "favicon")
        return console + [line for line in refused if not any(name in line for name in own)]

    yield errors
    server.shutdown()
    server.server_close()


def test_a_browser_opens_every_page_without_an_error(browse, pages):
    said = {page: browse(f"site/{page}") for page in pages if page != "404.html"}
    assert not {page: lines for page, lines in said.items() if lines}


def test_the_browser_would_say_so(browse):
    broken = browse("broken.html")
    assert any("undefined_name" in line for line in broken)
    assert "404 GET /nowhere.png" in broken
    assert "501 CONNECT example.org:443" in browse("foreign.html")

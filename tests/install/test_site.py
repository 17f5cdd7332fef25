# SPDX-License-Identifier: Apache-2.0
"""The site: its links lead somewhere, and in a real browser pictures, code and tables are there, a narrow window has nothing
beside it, and a word is found."""
import functools
import html.parser
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse

import pytest

WIDTHS = 400, 1400
PATIENCE_S = 240

# Opens each page in a frame of each width, one after the other, and writes down what it looks like.
_LOOKER = """<!doctype html><meta charset="utf-8"><body><script>
const pages = %s, widths = %s, seen = [];
const sleep = ms => new Promise(done => setTimeout(done, ms));
async function until(is_so) { for (let k = 0; k < 200 && !is_so(); k++) await sleep(25); return is_so(); }
async function open(page, width) {
    const frame = document.createElement("iframe");
    frame.style.width = width + "px"; frame.style.height = "900px"; frame.src = page;
    const loaded = new Promise(done => frame.onload = done);
    document.body.append(frame);
    await loaded;
    return frame;
}
async function look(page, width) {
    const frame = await open(page, width), d = frame.contentDocument, images = [...d.images];
    await until(() => images.every(i => i.complete));
    seen.push({page, width, wide: d.documentElement.scrollWidth, images: images.length,
               broken: images.filter(i => !i.naturalWidth).map(i => i.src), blocks: d.querySelectorAll("article pre code").length,
               title: d.querySelector("h1") ? d.querySelector("h1").innerText : ""});
    frame.remove();
}
async function search(page, word) {
    const frame = await open(page, 1400), d = frame.contentDocument, field = d.querySelector("[data-md-component=search-query]");
    const hits = () => [...d.querySelectorAll(".md-search-result__link")].map(a => a.getAttribute("href"));
    d.querySelector("#__search").checked = true;
    for (let k = 0; k < 40 && !hits().length; k++) {
        field.focus(); field.value = word;
        for (const name of ["input", "keyup"]) field.dispatchEvent(new frame.contentWindow.Event(name, {bubbles: true}));
        await sleep(250);
    }
    return hits();
}
(async () => {
    for (const page of pages) for (const width of widths) await look(page, width);
    const hits = await search("index.html", "whiteout");
    await fetch("/seen", {method: "POST", body: JSON.stringify({seen, hits})});
})();
</script>"""


class _Targets(html.parser.HTMLParser):
    """Where a page leads, and what can be led to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}


@pytest.fixture(scope="module")
def site(repository, tmp_path_factory):
    for name in ("mkdocs", "chromium"):
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")
    top = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([sys.executable, repository / "contrib" / "site" / "build.py", top], check=True)
    return top


def test_every_page_is_there(site, repository):
    # In the tree that was built, not beside it.
    for page in [*(repository / "doc").rglob("*.md"), *(repository / "man").glob("*.md"), repository / "README.md"]:
        made = page.relative_to(repository).with_suffix(".html")
        assert (site / ("index.html" if page.name == "README.md" else made)).exists(), page


def test_every_link_leads_somewhere(site):
    seen = {path: _Targets(path.read_text()) for path in site.rglob("*.html")}
    lost = []
    for path, targets in seen.items():
        for link in targets.links:
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc or path.name == "404.html":
                continue
            there = (path.parent / urllib.parse.unquote(where.path)).resolve() if where.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.exists() or (where.fragment and there in seen and urllib.parse.unquote(where.fragment) not in seen[there].anchors):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and takes what the browser has seen."""

    def do_POST(self):
        self.server.seen.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def looked_at(site, tmp_path_factory):
    """What a browser says of the pages."""
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")
    (site / "looker.html").write_text(_LOOKER % (json.dumps(pages), json.dumps(WIDTHS)))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(site))) as server:
        server.seen = queue.Queue()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with subprocess.Popen(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               f"--user-data-dir={tmp_path_factory.mktemp('browser')}", f"http://127.0.0.1:{server.server_port}/looker.html"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as browser:
            try:
                return json.loads(server.seen.get(timeout=PATIENCE_S))
            finally:
                os.killpg(browser.pid, signal.SIGKILL)
                server.shutdown()


def test_pages_have_their_titles_pictures_and_code(site, looked_at):
    by_page = {one["page"]: one for one in looked_at["seen"] if one["width"] == WIDTHS[1]}
    assert all(one["title"] for one in by_page.values()), [page for page, one in by_page.items() if not one["title"]]
    assert not [src for one in by_page.values() for src in one["broken"]]
    assert by_page["doc/PERFORMANCE.html"]["images"] + by_page["index.html"]["images"] >= 2
    assert by_page["doc/howto/branches.html"]["blocks"] >= 5


def test_no_window_has_a_bar_of_its_own(looked_at):
    wide = [f"{one['page']}: {one['wide']} of {one['width']}" for one in looked_at["seen"] if one["wide"] > one["width"]]
    assert not wide


def test_a_word_is_found(looked_at):
    assert any("SPEC.html" in hit or "names.html" in hit for hit in looked_at["hits"]), looked_at["hits"][:5]

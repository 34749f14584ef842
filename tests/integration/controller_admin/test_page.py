"""How the page is served: packaged, whole, behind a strict policy, and without a token."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import get_args

import pytest
from aiohttp.test_utils import TestClient, TestServer

import headrace_controller.admin.web
from headrace_controller.admin.web.pages import File, Pages
from headrace_controller.control.view import EventKind
from tests.integration.controller_admin.client import Client
from tests.integration.controller_admin.conftest import populated
from tests.integration.controller_admin.test_tokens import settings_in

STATIC = Path(headrace_controller.admin.web.__file__).parent / "static"
MOST_BYTES = 100_000
FILES = {
    path.name: path.read_text()
    for path in STATIC.iterdir()
    if path.suffix in (".html", ".js", ".css", ".svg")
}


async def test_the_page_and_all_it_names_are_there(client: Client) -> None:
    async with client.get("/") as answer:
        assert (answer.status, answer.content_type, answer.charset) == (200, "text/html", "utf-8")
        text = await answer.text()
    named = set(re.findall(r'(?:href|src)="(/page/[^"]+)"', text))
    assert {"/page/main.js", "/page/style.css", "/page/icon.svg"} <= named
    for path in named:
        async with client.get(path) as answer:
            assert answer.status == 200, path
            assert "nosniff" in answer.headers["X-Content-Type-Options"]
    assert (await client.head("/")).status == 200
    assert (await client.get("/page/none.js")).status == 404
    assert (await client.get("/page/..%2Fpages.py")).status == 404


def test_every_module_that_is_imported_is_told_beforehand() -> None:
    """The browser fetches all of them at once, not one after the other."""
    preloaded = set(re.findall(r'modulepreload" href="/page/([^"]+)"', FILES["index.html"]))
    imported = {
        name
        for text in FILES.values()
        for name in re.findall(r'^import .* from "\./([^"]+)";$', text, re.MULTILINE)
    }
    scripts = {name for name in FILES if name.endswith(".js")} - {"theme.js"}
    assert imported | {"main.js"} == preloaded == scripts


def test_every_kind_of_event_has_its_word_and_can_be_chosen() -> None:
    (table,) = re.findall(r"^const KINDS = \{(.*)\};$", FILES["events.js"], re.MULTILINE)
    assert set(re.findall(r"(\w+): ", table)) == set(get_args(EventKind))


async def test_the_policy_lets_nothing_in_but_the_pages_own_files(client: Client) -> None:
    for path in ("/", "/page/main.js"):
        headers = (await client.get(path)).headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"


def test_nothing_in_the_files_needs_a_weaker_policy_or_another_host() -> None:
    for name, text in FILES.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
        assert not re.search(r'\sstyle="|setAttribute\("style"|\son\w+="', text), name
        hosts = set(re.findall(r"https?://([^/\"' ]+)", text))
        assert hosts <= {"www.w3.org"}, name
    assert not re.search(r"<script(?![^>]*\bsrc=)", FILES["index.html"])


async def test_a_browser_that_has_it_is_told_so(client: Client) -> None:
    async with client.get("/page/main.js") as answer:
        tag, text = answer.headers["ETag"], await answer.text()
        assert answer.headers["Cache-Control"] == "no-cache"
    assert text == FILES["main.js"]
    async with client.get("/page/main.js", headers={"If-None-Match": tag}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")
    async with client.get("/page/main.js", headers={"If-None-Match": '"other"'}) as answer:
        assert answer.status == 200


async def test_it_is_packed_for_those_who_take_it(client: Client) -> None:
    plain = {"Accept-Encoding": "identity"}
    async with client.get("/page/style.css", headers=plain) as answer:
        assert "Content-Encoding" not in answer.headers
        assert await answer.text() == FILES["style.css"]
    packed = sum(len(gzip.compress(text.encode(), 9)) for text in FILES.values())
    assert packed <= MOST_BYTES


async def test_the_page_needs_no_token_and_what_it_shows_does(tmp_path: Path) -> None:
    region = populated(settings_in(tmp_path))
    async with TestClient(TestServer(region.desk.app)) as client:
        assert (await client.get("/")).status == 200
        assert (await client.get("/page/main.js")).status == 200
        assert (await client.get("/api/v1/live")).status == 401
    region.close()


def test_a_file_of_an_unknown_kind_is_no_part_of_the_page() -> None:
    assert "index.html" in Pages.packaged()
    with pytest.raises(KeyError):
        File.of("x.exe", b"")

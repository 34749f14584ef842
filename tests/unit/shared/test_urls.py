"""Addresses of HTTP as people write them."""

from __future__ import annotations

import pytest

from headrace_shared.urls import checked_url


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("http://127.0.0.1:9901", "http://127.0.0.1:9901"),
        ("https://[::1]:8080/", "https://[::1]:8080"),
        ("http://ctl/under//", "http://ctl/under"),
    ],
)
def test_a_url_is_used_without_a_slash_at_its_end(url: str, used: str) -> None:
    assert checked_url(url, "http://127.0.0.1:1") == used


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "ftp://h:1", "http://", "http://:1", "http://h:0", "http://h:x", "http://[::1"],
)
def test_a_url_that_is_none_says_what_to_write(url: str) -> None:
    with pytest.raises(ValueError, match="write http://HOST:PORT, as in nowhere"):
        checked_url(url, "nowhere")

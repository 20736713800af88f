"""Addresses of REST APIs: what requests need is ASCII, and what could never be reached is refused when it is read."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.nodes.rest.address import RestAddress


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, "a\0b", "\udcff", "a.." + "é"])
def test_a_name_that_no_name_system_holds_is_refused(host):
    with pytest.raises(ConfigurationError, match=r"an example is http://127\.0\.0\.1:8645"):
        RestAddress.parse(f"http://{host}:8645/waku")


@pytest.mark.parametrize(
    ("address", "host", "base_path"),
    [
        ("http://münchen.example", "xn--mnchen-3ya.example", ""),
        ("https://Example.org./waku/", "example.org.", "/waku"),
        ("http://[fe80::1%25lo]:8645", "fe80::1%25lo", ""),
        ("http://127.0.0.1/wä ku/%41", "127.0.0.1", "/w%C3%A4%20ku/%41"),
    ],
)
def test_names_and_paths_are_made_fit_for_a_request(address, host, base_path):
    parsed = RestAddress.parse(address)
    assert (parsed.host, parsed.base_path) == (host, base_path)
    assert f"{parsed.host}{parsed.base_path}".isascii()


def test_credentials_are_in_the_headers_and_not_in_the_name():
    parsed = RestAddress.parse("http://user:pass%20word@127.0.0.1:8645/waku?peerAddr=/ip4/127.0.0.1/tcp/1")
    assert parsed.headers == {"Authorization": "Basic dXNlcjpwYXNzIHdvcmQ="}
    assert parsed.name == "http://127.0.0.1:8645/waku"
    assert "dXNl" not in repr(parsed)
    assert parsed.peer == "/ip4/127.0.0.1/tcp/1"

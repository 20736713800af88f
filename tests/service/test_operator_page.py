"""The page ``/`` of a node in a real browser: what an operator sees of it, at the width of a desk and of a phone."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

import pytest

from browsing import SCREENS, launched, visited
from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage
from fairway.rln.membership_file import MembershipFile
from fairway.service.node import parts_of
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions
from fairway.wire.waku_message import WakuMessage
from nodes_in_threads import NodeInThread

SHARD = "/waku/2/rs/16/0"
MESSAGES = 200
TOPIC = "/busy/1/room/proto"
AGENT = "<script>window.hacked=1</script>"
LIVE = "Live: new figures every two seconds."


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def served():
    """A node with a peer that calls itself something hostile."""
    with NodeInThread() as served:
        peer = served.run(lambda: Host.start(agent=AGENT))
        served.run(lambda: peer.connect(served.node.addresses[0]))
        yield served
        served.run(peer.close)


@pytest.fixture
def busy(served):
    """The same after some messages."""

    async def traffic() -> None:
        for number in range(MESSAGES):
            message = WakuMessage(payload=b"%d" % number, content_topic=TOPIC, timestamp_ns=time.time_ns())
            await served.node.send(RoutedMessage.of(SHARD, message))

    served.run(traffic)
    return served


def live(page: Any) -> Any:
    """Wait for the first figures."""
    page.get_by_text(LIVE).wait_for()
    return page


@pytest.mark.full
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_page_fits_its_screen_and_nothing_is_cut_off(browser, busy, screen):
    with visited(browser, busy.server.url, screen) as page:
        live(page)
        page.locator("#peers summary").click()
        page.locator("#peer-list tbody tr").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= screen.width
        narrow = page.evaluate(
            """() => [...document.querySelectorAll('td, dd, p, button, .table')].filter((each) =>
                each.offsetParent && each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"""
        )
        assert narrow == []


def test_the_figures_are_those_of_the_node(browser, busy):
    with visited(browser, busy.server.url) as page:
        live(page)
        keys = page.locator("#keys > div")
        count = f"{parts_of(busy.node).distribution.statistics().messages:,}"
        # The first figures may be those from before these messages, if other tests sent some.
        page.get_by_text(f"{count} since the start").wait_for()
        keys.filter(has_text="Archive").get_by_text(count, exact=True).wait_for()
        figures = dict(zip(keys.locator("dt").all_inner_texts(), keys.locator("strong").all_inner_texts(), strict=True))
        assert (figures["Health"], figures["Peers"], figures["Archive"]) == ("ready", "1", count)
        assert page.get_by_role("img", name="Messages a second").count() == 1
        assert page.locator("#shards tbody td").nth(2).inner_text() == count
        assert page.locator("#agents tbody td").all_inner_texts() == [AGENT, "1"]


@pytest.mark.full
@pytest.mark.skipif(find_spec("fairway_rln") is None, reason="fairway-rln is not installed: make rln")
def test_a_node_that_verifies_proofs_shows_the_verdicts(browser, busy, tmp_path):
    with visited(browser, busy.server.url) as page:
        live(page)
        assert not page.get_by_role("heading", name="RLN proofs").is_visible()
    group = MembershipFile.create(tmp_path / "group.json")
    with NodeInThread(gate=lambda: ProofGate(group)) as served:
        message = RoutedMessage.of(SHARD, WakuMessage(payload=b"x", content_topic="/a/1/b/c", timestamp_ns=1))
        assert not served.run(lambda: served.node.send(message)).accepted
        served.run(lambda: parts_of(served.node).gate.judge("a peer", message))
        with visited(browser, served.server.url) as page:
            page.get_by_role("heading", name="RLN proofs").wait_for()
            assert page.locator("#proofs tbody td").all_inner_texts() == [
                "admitted",
                "0",
                "repeated",
                "0",
                "missing",
                "2",
            ]
            assert page.locator("#protocols li", has_text="Rln Relay: ready").is_visible()


def test_names_of_peers_are_shown_as_text(browser, busy):
    with visited(browser, busy.server.url) as page:
        live(page)
        page.locator("#peers summary").click()
        peers = page.locator("#peer-list tbody td")
        peers.first.wait_for()
        assert AGENT in peers.all_inner_texts()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("window.hacked") is None


@pytest.mark.full
def test_the_page_shows_a_lost_connection_and_reconnects(browser):
    with NodeInThread() as served, visited(browser, served.server.url, may_complain=True) as page:
        page.get_by_text(LIVE).wait_for()
        served.stop_serving()
        page.get_by_text("No connection:").wait_for()
        assert "The figures are of" in page.get_by_role("status").first.inner_text()
        assert page.evaluate("getComputedStyle(document.querySelector('main')).opacity") != "1"
        served.serve_again()
        page.get_by_role("button", name="Try now").click()
        page.get_by_text(LIVE).wait_for()
        assert not page.get_by_role("button", name="Try now").is_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('main')).opacity") == "1"
        served.stop_serving()
        page.get_by_text("No connection:").wait_for()
        served.serve_again()
        page.get_by_text(LIVE).wait_for()  # by itself


def test_a_page_without_a_token_asks_for_one_and_keeps_it_in_its_memory_only(browser):
    general, admin = "general-0123456789", "admin-0123456789"
    options = RestOptions(token=general, admin_token=admin)
    with NodeInThread(options) as served, visited(browser, served.server.url, may_complain=True) as page:
        page.get_by_text("The node asks for a token.").wait_for()
        field = page.get_by_label("Bearer token.")
        assert field.get_attribute("type") == "password"
        field.fill("wrong-0123456789")
        field.press("Enter")
        page.get_by_text("The node does not accept this token.").wait_for()
        field.fill(general)
        page.get_by_role("button", name="Use this token").click()
        page.get_by_text(LIVE).wait_for()
        assert not field.is_visible()
        page.locator("#peers summary").click()
        page.get_by_text("The node answers 403: this call needs the token for /admin").wait_for()
        assert general not in page.content()
        assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        page.reload()
        page.get_by_text("The node asks for a token.").wait_for()
        field.fill(admin)
        field.press("Enter")
        page.get_by_text(LIVE).wait_for()
        page.locator("#peers summary").click()
        page.get_by_text("No peer is connected.").last.wait_for()

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
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions
from fairway.service.rest.statistics import MAX_TOPICS
from fairway.wire.waku_message import WakuMessage
from nodes_in_threads import NodeInThread

DESK, PHONE = SCREENS
SHARD = "/waku/2/rs/16/0"
TOPICS = 1_000
BUSIEST = 200
HOSTILE = "/<img src=x onerror=window.hacked=1>/1/a/proto"
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
    """The same after new messages on 1,001 topics, the busiest of which is hostile."""

    async def traffic() -> None:
        for number in range(TOPICS + BUSIEST):
            topic = HOSTILE if number >= TOPICS else f"/busy/1/topic-{number}/proto"
            message = WakuMessage(payload=b"x" * 100, content_topic=topic, timestamp_ns=time.time_ns())
            await served.node.send(RoutedMessage.of(SHARD, message))

    served.run(traffic)
    return served


def live(page: Any) -> Any:
    """Wait for figures that have all messages of the busiest topic, which are sent last.

    A slot of two seconds is shown when it is over, and the messages may be of more slots than one.
    """
    page.get_by_text(LIVE).wait_for()
    page.wait_for_function(
        """least => {
            const cell = document.querySelectorAll('#topics td')[4];
            return cell && Number(cell.innerText.replaceAll(',', '')) >= least;
        }""",
        arg=BUSIEST,
    )
    return page


@pytest.mark.full
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_page_fits_its_screen_and_nothing_is_cut_off(browser, busy, screen):
    with visited(browser, busy.server.url, screen) as page:
        live(page)
        page.locator("#peers summary").click()
        page.locator("#peer-list tbody tr").first.wait_for()
        page.get_by_role("button", name=f"Show {MAX_TOPICS} topics").click()
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
        count = f"{busy.node.distribution.statistics().messages:,}"
        # The first figures may be those from before these messages, if other tests sent some.
        page.get_by_text(f"{count} since the start").wait_for()
        keys.filter(has_text="Archive").get_by_text(count, exact=True).wait_for()
        figures = dict(zip(keys.locator("dt").all_inner_texts(), keys.locator("strong").all_inner_texts(), strict=True))
        assert (figures["Health"], figures["Peers"], figures["Archive"]) == ("ready", "1", count)
        first = page.locator("#topics tbody tr").first.locator("td")
        assert first.nth(1).inner_text() == SHARD
        assert int(first.nth(4).inner_text().replace(",", "")) >= BUSIEST
        assert page.get_by_role("img", name="Messages a second").count() == 1
        assert first.locator("svg").count() == 2  # of messages and of bytes
        assert page.locator("#shards tbody td").nth(3).inner_text() == count
        assert page.locator("#agents tbody td").all_inner_texts() == [AGENT, "1"]


@pytest.mark.full
@pytest.mark.skipif(find_spec("fairway_rln") is None, reason="fairway-rln is not installed: make rln")
def test_a_node_that_asks_for_proofs_shows_what_became_of_messages(browser, busy, tmp_path):
    with visited(browser, busy.server.url) as page:
        live(page)
        assert not page.get_by_role("heading", name="RLN proofs").is_visible()
    group = MembershipFile.create(tmp_path / "group.json")
    with NodeInThread(gate=lambda: ProofGate(group)) as served:
        message = RoutedMessage.of(SHARD, WakuMessage(payload=b"x", content_topic="/a/1/b/c", timestamp_ns=1))
        assert not served.run(lambda: served.node.send(message)).accepted
        served.run(lambda: served.node.gate.judge("a peer", message))
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


@pytest.mark.full
def test_a_thousand_topics_are_a_list_of_bounded_length(browser, busy):
    with visited(browser, busy.server.url) as page:
        live(page)
        rows = page.locator("#topics tbody tr")
        assert rows.count() == 10
        more = page.get_by_role("button", name=f"Show {MAX_TOPICS} topics")
        assert more.get_attribute("aria-expanded") == "false"
        more.click()
        assert rows.count() == MAX_TOPICS
        note = page.locator("#topics-note").inner_text()
        assert f"{MAX_TOPICS} topics are listed. All others ({TOPICS + 1 - MAX_TOPICS} in use) had " in note
        page.get_by_role("button", name="Show the first 10").click()
        assert rows.count() == 10


def test_what_strangers_call_themselves_stays_text(browser, busy):
    with visited(browser, busy.server.url) as page:
        live(page)
        assert page.locator("#topics tbody td.name").first.inner_text() == HOSTILE
        page.locator("#peers summary").click()
        peers = page.locator("#peer-list tbody td")
        peers.first.wait_for()
        assert AGENT in peers.all_inner_texts()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("window.hacked") is None


def test_the_policy_of_the_page_lets_no_other_script_run(browser, busy):
    with visited(browser, busy.server.url, may_complain=True) as page:
        live(page)
        page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = 'window.hacked = 1';
                document.body.append(script);
                const image = document.createElement('div');
                image.innerHTML = '<img src=x onerror="window.hacked = 1">';
                document.body.append(image);
                return new Promise((resolve) => setTimeout(resolve, 100));
            }"""
        )
        assert page.evaluate("window.hacked") is None
        outside = "fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => error.message)"
        assert page.evaluate(outside) == "Failed to fetch"


@pytest.mark.full
def test_a_lost_connection_is_said_and_made_again(browser):
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


@pytest.mark.full
def test_a_paused_page_stands_still_and_goes_on(browser):
    with NodeInThread() as served, visited(browser, served.server.url) as page:
        page.get_by_text(LIVE).wait_for()
        pause = page.get_by_role("button", name="Pause")
        pause.click()
        assert pause.get_attribute("aria-pressed") == "true"
        page.get_by_text("Paused: the figures stand still.").wait_for()
        message = WakuMessage(payload=b"x", content_topic="/a/1/b/proto", timestamp_ns=1)
        with page.expect_request_finished(lambda request: "health" in request.url):
            served.run(lambda: served.node.send(RoutedMessage.of(SHARD, message)))
            page.evaluate("fetch('health').then((answer) => answer.text())")
        assert page.get_by_text("0 since the start").is_visible()
        pause.press("Enter")
        page.get_by_text("1 since the start").wait_for()


@pytest.mark.full
def test_everything_can_be_reached_with_the_keyboard(browser, busy):
    with visited(browser, busy.server.url) as page:
        live(page)
        page.evaluate("document.activeElement.blur()")
        reached = []
        for _ in range(6):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.innerText"))
        assert reached == [
            "REST API",
            "Metrics",
            "Health as JSON",
            "Pause",
            f"Show {MAX_TOPICS} topics",
            "Connected peers",
        ]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.locator("#peer-list tbody tr").first.wait_for()


@pytest.mark.full
def test_new_figures_leave_the_focus_where_it_is(browser, busy):
    with visited(browser, busy.server.url) as page:
        live(page)
        page.locator("#more").focus()
        kept = page.locator("#topics tbody tr").first.element_handle()
        before = page.locator("#keys span").first.inner_text()
        page.wait_for_function("(text) => document.querySelector('#keys span').innerText !== text", arg=before)
        assert page.evaluate("document.activeElement.id") == "more"
        assert kept.evaluate("each => each.isConnected")


@pytest.mark.full
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_a_screen_reader_finds_names_for_everything_and_is_not_talked_to_without_end(browser, busy, screen):
    with visited(browser, busy.server.url, screen) as page:
        live(page)
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, [role=img], table, section')].filter((each) => {
                const by = each.getAttribute('aria-labelledby');
                const label = each.getAttribute('aria-label') || (each.labels && each.labels.length) ||
                    (by && by.split(' ').every((id) => document.getElementById(id))) || each.innerText ||
                    (each.caption && each.caption.textContent);
                return !label;
            }).map((each) => each.outerHTML.slice(0, 200))"""
        )
        assert unnamed == []
        assert page.evaluate("document.documentElement.lang") == "en"
        headings = page.evaluate("[...document.querySelectorAll('h1, h2')].map((each) => each.tagName)")
        assert (headings[0], headings.count("H1")) == ("H1", 1)
        # Figures that change every two seconds are in no live region; the state of the connection is.
        spoken = page.evaluate("[...document.querySelectorAll('[role=status], [aria-live]')].map((each) => each.id)")
        assert spoken == ["state", "peers-note"]


@pytest.mark.full
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_their_ground(browser, busy, is_dark):
    with visited(browser, busy.server.url, is_dark=is_dark) as page:
        live(page)
        ratios = page.evaluate(
            """() => {
                const light = (color) => {
                    const parts = color.match(/\\d+/g).slice(0, 3).map((part) => part / 255)
                        .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
                    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
                };
                const ground = light(getComputedStyle(document.body).backgroundColor);
                const all = ['h1', 'td', 'th', '.note', '.good', 'nav a', '#who', '#state'];
                return all.map((each) => {
                    const ink = light(getComputedStyle(document.querySelector(each)).color);
                    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
                });
            }"""
        )
        assert min(ratios) >= 4.5
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(20, 23, 26)" if is_dark else "rgb(253, 253, 252)")

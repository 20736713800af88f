"""The page of a report in a real browser: what a person does with it, at the width of a desk and of a phone."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from browsing import SCREENS, Screen, launched, opened
from fairway.pipeline.report.html import write_html_report
from run_tables import write_run

DESK, PHONE = SCREENS
A4 = Screen(name="A4", width=718, height=1_047)  # what its margins leave, at 96 dots an inch
MOSTLY_AT_A_DESK = [pytest.param(DESK, id="desk"), pytest.param(PHONE, id="phone", marks=pytest.mark.full)]
BEGIN = 1_760_000_000_000_000_000
SECOND = 1_000_000_000
HOSTILE = "<b onclick=alert(1)>=cmd()</b>"
FORMULA = "=HYPERLINK(1)"


def statistics(channel: str, content: int, missing: int, **more: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("sync", "ephemeral", "repeats", "incomplete", "reassembled", "recovered"), 0)
    return {
        "channel_id": channel,
        "senders": 2,
        "content": content,
        "missing": missing,
        "acknowledged": content,
        "delivered": content,
        "delivered_bytes": content,
        "first_seen_ns": BEGIN,
        "last_seen_ns": BEGIN + content * SECOND,
        **figures,
        **more,
    }


def message(channel: str, number: int) -> dict[str, Any]:
    return {
        "channel_id": channel,
        "sender_id": ("alice", "bob")[number % 2],
        "message_id": f"{number:064x}",
        "message_hash": number.to_bytes(32),
        "timestamp_ns": BEGIN + number * SECOND,
        "status": "waiting" if number % 3 == 0 else "complete",
    }


def lost(channel: str, number: int, sender_id: str) -> dict[str, Any]:
    return {
        "channel_id": channel,
        "message_id": f"lost-{channel}-{number}",
        "sender_id": sender_id,
        "cited_by": 1 + number,
        "first_cited_ns": BEGIN + number * SECOND,
        "last_cited_ns": BEGIN + number * SECOND,
        "first_cited_by": "bob",
        "last_cited_by": "bob",
    }


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    channels = [f"channel-{number}" for number in range(40)] + [HOSTILE]
    tables = {
        "channel_stats": [
            statistics("team", 200, 30, latency_p95_ms=2**63 // 10**6),
            *(statistics(name, 10 + place, 0) for place, name in enumerate(channels)),
        ],
        "sender_stats": [
            statistics("team", 100, 30, sender_id="alice", latency_p50_ms=4_110),
            statistics("team", 100, 0, sender_id="bob"),
            *(statistics(name, 10, 0, sender_id=FORMULA) for name in channels),
        ],
        "missing_messages": [lost("team", number, "alice") for number in range(30)],
        "sds_ordered": [message("team", number) for number in range(200)] + [message(HOSTILE, 500)],
        "waku_messages": [
            {
                "message_hash": number.to_bytes(32),
                "timestamp_ns": BEGIN + number * SECOND,
                "content_topic": "/team",
                "sources": ["a", "b"] if number < 100 else ["a"],
            }
            for number in range(200)
        ],
        "sds_messages": [
            {
                "timestamp_ns": BEGIN + number * SECOND,
                "payload_bytes": 9,
                "channel_id": "team",
                "content_topic": "/team",
            }
            for number in range(200)
        ],
        "store_completeness": [
            {"source": "a", "messages": 200, "known": 200, "missing": 0},
            {"source": "b", "messages": 100, "known": 200, "missing": 100},
        ],
        "rate_utilisation": [
            {
                "sender_id": f"sender-{number}",
                "epoch_start_ms": 0,
                "messages": number,
                "charged": number,
                "rate_limit": 100,
                "pct": float(number),
            }
            for number in range(60)
        ],
    }
    file = folder / "report.html"
    write_html_report(write_run(folder / "run", tables), file)
    return file


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


def table(page: Any, name: str) -> Any:
    found = page.locator(f'[data-table="{name}"]')
    found.evaluate("each => { each.closest('details').open = true; }")
    found.scroll_into_view_if_needed()
    found.locator(".tools").wait_for()
    return found


def first_cells(found: Any, column: str) -> list[str]:
    return found.locator(f'tbody td[data-title="{column}"]').all_inner_texts()


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_page_fits_its_screen_and_nothing_is_cut_off(browser, page_file, screen):
    with opened(browser, page_file, screen) as page:
        page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for name in ("channels", "lost", "messages", "rate"):
            table(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= screen.width
        narrow = page.evaluate(
            """() => [...document.querySelectorAll('[data-table] td')].filter((each) =>
                each.offsetParent && each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"""
        )
        assert narrow == []
        if screen is DESK:
            beyond = page.evaluate(
                """() => [...document.querySelectorAll('.table')].filter((each) =>
                    each.scrollWidth > each.clientWidth).map((each) => each.dataset.table || each.innerText)"""
            )
            assert beyond == []


@pytest.mark.full
def test_a_column_sorts_up_and_down_and_back_and_says_so(browser, page_file):
    with opened(browser, page_file) as page:
        rates = table(page, "rate")
        head = rates.locator("th", has_text="charged")
        assert first_cells(rates, "charged")[0] == "59 (59.0%)"
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert first_cells(rates, "charged")[0] == "0 (0.0%)"
        senders = rates.locator("th", has_text="sender")
        senders.get_by_role("button").click()
        assert (senders.get_attribute("aria-sort"), head.get_attribute("aria-sort")) == ("ascending", None)
        senders.get_by_role("button").click()
        assert senders.get_attribute("aria-sort") == "descending"
        senders.get_by_role("button").press("Enter")
        assert [each.get_attribute("aria-sort") for each in (senders, head)] == [None, None]
        assert first_cells(rates, "charged")[:2] == ["59 (59.0%)", "58 (58.0%)"]
        assert page.get_by_text("The first order is back: ").count() == 1


def test_search_filters_and_pages_of_rows(browser, page_file):
    with opened(browser, page_file) as page:
        messages = table(page, "messages")
        assert messages.get_by_text("1 to 25 of 201").is_visible()
        messages.get_by_role("button", name="Next").click()
        assert messages.get_by_text("26 to 50 of 201").is_visible()
        messages.get_by_label("State").select_option("waiting")
        assert messages.get_by_text("1 to 25 of 67").is_visible()
        assert set(first_cells(messages, "state")) == {"waiting"}
        messages.get_by_label("Stores").select_option("all stores")
        assert messages.get_by_text("1 to 25 of 34").is_visible()
        messages.get_by_label("Search").fill(f"{33:064x}")
        messages.get_by_text("1 to 1 of 1").wait_for()
        messages.get_by_label("Search").fill("nothing has this")
        messages.get_by_text("No row fits.").wait_for()


@pytest.mark.parametrize("screen", MOSTLY_AT_A_DESK)
def test_a_channel_is_followed_to_its_senders_losses_stores_and_messages(browser, page_file, screen):
    with opened(browser, page_file, screen) as page:
        channels = table(page, "channels")
        channels.get_by_role("link", name="team", exact=True).click()
        bar = page.get_by_role("region", name="What is followed")
        bar.get_by_text("channel team").wait_for()
        told = bar.get_by_role("listitem").all_inner_texts()
        assert told == [
            "Channels: 1",
            "Channels and senders: 2",
            "Lost messages: 30",
            "Stores, topics and channels: 1",
            "Senders and epochs: 0",
            "Messages that are there: 200",
        ]
        assert page.get_by_role("status").first.inner_text() == "All tables show channel team only."
        bar.get_by_role("link", name="Lost messages: 30").click()
        gaps = page.locator('[data-table="lost"]')
        assert gaps.is_visible()
        assert page.evaluate("document.activeElement.closest('[data-table]').dataset.table") == "lost"
        table(page, "senders").get_by_role("link", name="bob", exact=True).click()
        bar.get_by_text("channel team, sender bob").wait_for()
        assert "Messages that are there: 100" in bar.get_by_role("listitem").all_inner_texts()
        bar.get_by_role("button", name="Show everything").click()
        bar.wait_for(state="hidden")
        assert table(page, "messages").get_by_text("1 to 25 of 201").is_visible()


@pytest.mark.full
def test_the_address_names_what_is_followed_so_that_it_can_be_kept_and_gone_back_from(browser, page_file):
    with opened(browser, page_file) as page:
        page.goto(f"{page_file.as_uri()}#channel=team&sender=alice")
        bar = page.get_by_role("region", name="What is followed")
        bar.get_by_text("channel team, sender alice").wait_for()
        page.goto(f"{page_file.as_uri()}#channel=team")
        bar.get_by_text("channel team", exact=True).wait_for()
        page.go_back()
        bar.get_by_text("channel team, sender alice").wait_for()


@pytest.mark.full
def test_a_full_id_is_copied(browser, page_file):
    with opened(browser, page_file) as page:
        messages = table(page, "messages")
        wanted = f"{199:064x}"
        messages.get_by_label("Search").fill(wanted)
        messages.get_by_text("1 to 1 of 1").wait_for()
        messages.get_by_role("button", name=f"Copy message {wanted}").click()
        messages.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == wanted


def test_a_latency_of_centuries_reads_as_days(browser, page_file):
    with opened(browser, page_file) as page:
        channels = table(page, "channels")
        channels.get_by_label("Search").fill("team")
        channels.get_by_text("1 to 1 of 1").wait_for()
        assert first_cells(channels, "p95") == ["106,752 d"]


@pytest.mark.full
def test_a_table_is_saved_as_csv_with_what_is_shown_and_no_formulas(browser, page_file):
    with opened(browser, page_file) as page:
        senders = table(page, "senders")
        with page.expect_download() as download:
            senders.get_by_role("button", name="Save as CSV").click()
        assert download.value.suggested_filename == "senders.csv"
        rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
        assert len(rows) == 43
        assert (rows[0]["channel"], rows[0]["sender"], rows[0]["lost"], rows[0]["known"]) == (
            "team",
            "alice",
            "30",
            "130",
        )
        assert rows[0]["first (UTC)"] == "2025-10-09T08:53:20.000Z"
        assert rows[0]["p50 (ms)"] == "4110"
        assert {row["sender"] for row in rows} == {"alice", "bob", f"'{FORMULA}"}
        senders.get_by_label("Search").fill("bob")
        senders.get_by_text("1 to 1 of 1").wait_for()
        with page.expect_download() as download:
            senders.get_by_role("button", name="Save as CSV").click()
        assert len(Path(download.value.path()).read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.full
def test_what_strangers_wrote_stays_text_in_the_script_s_rows(browser, page_file):
    with opened(browser, page_file) as page:
        channels = table(page, "channels")
        channels.get_by_label("Search").fill("onclick")
        channels.get_by_text("1 to 1 of 1").wait_for()
        assert first_cells(channels, "channel") == [HOSTILE]
        assert channels.locator("tbody b").count() == 0
        channels.get_by_role("link", name=HOSTILE).click()
        page.get_by_role("region", name="What is followed").get_by_text(HOSTILE).wait_for()


@pytest.mark.full
def test_a_phone_shows_folded_sections_and_rows_as_lists(browser, page_file):
    with opened(browser, page_file, PHONE) as page:
        assert page.locator("main details[open]").count() == 0
        page.get_by_role("navigation").get_by_role("link", name="Senders", exact=True).tap()
        senders = page.locator('[data-table="senders"]')
        senders.locator(".tools").wait_for()
        assert page.locator("main details[open]").count() == 1
        cell = senders.locator("tbody td").first
        assert cell.evaluate("each => getComputedStyle(each, '::before').content") == '"channel"'


@pytest.mark.full
def test_a_phone_sorts_without_heads(browser, page_file):
    with opened(browser, page_file, PHONE) as page:
        rates = table(page, "rate")
        rates.get_by_label("Sort by").select_option(label="charged")
        assert first_cells(rates, "charged")[0] == "59 (59.0%)"
        rates.get_by_role("button", name="Reverse").tap()
        assert first_cells(rates, "charged")[0] == "0 (0.0%)"
        assert rates.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
        rates.get_by_label("Sort by").select_option(label="as they came")
        assert rates.locator("th[aria-sort]").count() == 0
        assert rates.get_by_role("button", name="Reverse").is_disabled()
    with opened(browser, page_file) as page:
        assert not table(page, "rate").get_by_label("Sort by").is_visible()


@pytest.mark.full
def test_everything_can_be_reached_with_the_keyboard(browser, page_file):
    with opened(browser, page_file) as page:
        rates = table(page, "rate")
        rates.get_by_label("Search").focus()
        reached = []
        for _ in range(8):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.innerText"))
        assert reached[:6] == ["Save as CSV", "channel", "sender", "epoch from (UTC)", "messages", "charged"]
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.locator("section#rate summary").press("Enter")
        assert not page.locator("section#rate details").evaluate("each => each.open")


@pytest.mark.full
@pytest.mark.parametrize("screen", MOSTLY_AT_A_DESK)
def test_a_screen_reader_finds_names_for_everything_that_it_can_use(browser, page_file, screen):
    with opened(browser, page_file, screen) as page:
        page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for name in ("channels", "lost", "messages"):
            table(page, name)
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, select, svg[role=img], table')].filter((each) => {
                const label = each.getAttribute('aria-label') || (each.labels && each.labels.length) ||
                    each.getAttribute('aria-labelledby') || each.innerText || (each.caption && each.caption.innerText);
                return !label;
            }).map((each) => each.outerHTML.slice(0, 200))"""
        )
        assert unnamed == []
        assert page.evaluate("document.documentElement.lang") == "en"
        headings = page.evaluate("[...document.querySelectorAll('h1, h2')].map((each) => each.tagName)")
        assert headings[0] == "H1"
        assert headings.count("H1") == 1
        # Folding a table to lists takes nothing from its roles, and each head says of what.
        assert page.get_by_role("columnheader", name="channel").count() >= 3


def test_whoever_follows_with_the_keyboard_goes_on_there_and_comes_back_to_the_table(browser, page_file):
    with opened(browser, page_file) as page:
        senders = table(page, "senders")
        senders.get_by_role("link", name="alice", exact=True).press("Enter")
        bar = page.get_by_role("region", name="What is followed")
        bar.get_by_text("channel team, sender alice").wait_for()
        assert bar.evaluate("each => each === document.activeElement")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Show everything"
        page.keyboard.press("Enter")
        bar.wait_for(state="hidden")
        assert page.evaluate("document.activeElement.closest('[data-table]').dataset.table") == "senders"


def test_a_message_that_waits_for_nothing_is_not_said_to_wait_for_something_unknown(browser, page_file):
    with opened(browser, page_file) as page:
        messages = table(page, "messages")
        messages.get_by_label("State").select_option("complete")
        assert set(first_cells(messages, "waits for")) == {"none"}


@pytest.mark.full
def test_on_paper_tables_are_as_wide_as_the_page_and_commands_stand_there(browser, page_file):
    with opened(browser, page_file, A4) as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        for name in ("channels", "senders", "lost", "messages"):
            wide = page.locator(f'[data-table="{name}"]')
            assert wide.evaluate("each => each.querySelector('table').offsetWidth <= each.clientWidth"), name
        assert page.locator("details:not([open])").count() == 0
        assert not page.get_by_role("button", name="Save as CSV").first.is_visible()


def test_without_scripts_the_first_rows_stand_there(browser, page_file):
    with opened(browser, page_file, scripts=False) as page:
        assert page.locator('[data-table="channels"] tbody tr').count() == 15
        shown = page.get_by_text("a browser with scripts shows all")
        assert shown.first.is_visible()
        assert all("The first 15 of " in each for each in shown.all_inner_texts())
    with opened(browser, page_file) as page:
        assert not page.get_by_text("a browser with scripts shows all").first.is_visible()


@pytest.mark.full
def test_on_paper_stands_which_rows_are_there(browser, page_file):
    with opened(browser, page_file, A4) as page:
        messages = table(page, "messages")
        page.emulate_media(media="print")
        assert messages.get_by_text("1 to 25 of 201").is_visible()
        assert not messages.get_by_role("button", name="Next").is_visible()
        assert messages.locator(".without").count() == 0
        unseen = page.locator("[data-table]:not(:has(.pager)) .without")
        assert unseen.first.is_visible()
        page.emulate_media(media="screen")
        table(page, "channels").get_by_role("link", name="team", exact=True).click()
        bar = page.get_by_role("region", name="What is followed")
        bar.get_by_text("channel team").wait_for()
        page.emulate_media(media="print")
        assert bar.get_by_text("channel team").is_visible()
        assert not bar.get_by_role("button").is_visible()

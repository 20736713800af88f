"""``fairway chat --web``: what a person sees and does in a real browser, and what other sites cannot."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_websocket

from browsing import SCREENS, launched, visited
from fairway.cli._settings import ChannelSettings
from fairway.cli.web_chat.server import serve
from fairway.errors import ConfigurationError, StorePathError
from fairway.events import MessageReceived
from fairway.files import FileReceived, FileReceiver, send_file
from fairway.wire.file_message import FileManifest, FilePart, encode_file_message, manifest_id
from loop_threads import LoopThread
from patience import PATIENCE_S, until

MakeSettings = Callable[..., ChannelSettings]

NAME = '<img src=x onerror="window.hacked=1">'
TEXT = "<script>window.hacked=1</script> <b>bold</b> \u202etxt.exe"
SHOWN_TEXT = "<script>window.hacked=1</script> <b>bold</b> \\u202etxt.exe"
UNNAMED = """(all) => all.filter((each) => {
  const labels = [...(each.labels || [])].map((label) => label.innerText).join("");
  return !(each.getAttribute("aria-label") || each.textContent || labels);
}).map((each) => each.outerHTML)"""


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


class Other:
    """Another participant, which finishes its messages, and saves files if it has a folder."""

    def __init__(self, settings: ChannelSettings, folder: Path | None) -> None:
        self.started = asyncio.Event()
        self.received: list[bytes] = []
        self.saved: list[Path] = []
        self.channel: Any = None
        self._settings = settings
        self._folder = folder

    async def run(self) -> None:
        async with self._settings.open() as (_, self.channel):
            receiver = None if self._folder is None else await FileReceiver.open(self.channel, self._folder)
            events = self.channel.events()
            await self.channel.start()
            self.started.set()
            async for event in events:
                if isinstance(event, MessageReceived):
                    self.received.append(event.payload)
                    outcome = None if receiver is None else await receiver.take(event)
                    if isinstance(outcome, FileReceived):
                        self.saved.append(outcome.path)


class Room(LoopThread):
    """An event loop in a thread, in which participants run while the browser blocks the test's thread."""

    def __init__(self, make_settings: MakeSettings, folder: Path) -> None:
        super().__init__()
        self.make_settings = make_settings
        self.folder = folder

    def say(self, other: Other, *payloads: str | bytes) -> None:
        async def all_payloads() -> None:
            for payload in payloads:
                await other.channel.send(payload.encode() if isinstance(payload, str) else payload)

        self.run(all_payloads)

    @contextmanager
    def running(self, work: Coroutine[Any, Any, None]) -> Iterator[asyncio.Task[None]]:
        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        task = self.run(begin)
        try:
            yield task
        finally:
            self.run(end)

    @contextmanager
    def page(self, settings: ChannelSettings | None = None) -> Iterator[str]:
        """Serve the page of a participant, by default alice; yield its address."""
        chosen = settings or self.make_settings("alice", self.folder / "alice.db")
        said: queue.Queue[str] = queue.Queue()
        with self.running(serve(chosen, None, 0, said.put)):
            found = re.search(r"http://\S+", said.get(timeout=PATIENCE_S))
            assert found is not None
            yield found[0]

    @contextmanager
    def other(self, name: str, folder: Path | None = None, settings: ChannelSettings | None = None) -> Iterator[Other]:
        other = Other(settings or self.make_settings(name), folder)
        with self.running(other.run()):
            self.run(other.started.wait)
            yield other


@pytest.fixture
def room(make_settings, tmp_path):
    with Room(make_settings, tmp_path) as room:
        yield room


def write(page: Any, text: str) -> None:
    field = page.get_by_role("textbox", name="Message")
    field.fill(text)
    field.press("Enter")


def own(page: Any, text: str) -> Any:
    return page.locator("li.own").filter(has_text=text)


def texts(page: Any) -> list[str]:
    return page.locator(".text").all_inner_texts()


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_a_person_sends_sees_who_has_it_receives_and_loads_the_page_again(browser, room, screen):
    with room.page() as url, room.other("bob") as bob, visited(browser, url, screen) as page:
        page.get_by_text("connected", exact=True).wait_for()
        write(page, "who is on watch?")
        own(page, "who is on watch?").get_by_text("✓✓ bob").wait_for()
        room.say(bob, "I am")
        page.get_by_text("I am").wait_for()
        page.reload()
        own(page, "who is on watch?").get_by_text("✓✓ bob").wait_for()
        assert texts(page) == ["who is on watch?", "I am"]
        assert bob.received == [b"who is on watch?"]
        assert page.evaluate("document.documentElement.scrollWidth") <= screen.width


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_names_and_texts_of_strangers_are_text_and_fit_the_screen(browser, room, screen):
    with room.page() as url, room.other(NAME) as stranger, visited(browser, url, screen) as page:
        room.say(stranger, TEXT, "x" * 2_000, "\n".join("tall" for _ in range(2_000)))
        page.get_by_text("tall").wait_for()
        assert texts(page)[0] == SHOWN_TEXT
        assert page.locator(".bubble .who").first.inner_text() == NAME
        page.get_by_text("Members (1 here)").click()
        assert page.locator("main img, main script, main b, aside img").count() == 0
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= screen.width
        assert page.evaluate("document.documentElement.scrollHeight") <= screen.height
        for bubble in page.locator(".bubble").all():
            assert bubble.evaluate("(each) => each.offsetHeight") < screen.height


def test_files_go_both_ways_with_their_progress(browser, room, tmp_path):
    content = os.urandom(3_000_000)
    given = tmp_path / "<b>chart.pdf"
    given.write_bytes(content)
    with room.page() as url, room.other("bob", tmp_path / "of bob") as bob, visited(browser, url) as page:
        page.get_by_label("Send files").set_input_files(given)
        own(page, given.name).get_by_text("✓✓ bob").wait_for()
        room.run(lambda: until(lambda: bob.saved))
        assert (bob.saved[0].name, bob.saved[0].read_bytes()) == (given.name, content)
        room.run(lambda: send_file(bob.channel, given, name="back.html"))
        link = page.get_by_role("link", name="Download back.html")
        page.reload()
        with page.expect_download() as download:
            link.click()
        assert download.value.suggested_filename == "back.html"
        assert Path(download.value.path()).read_bytes() == content
        assert own(page, given.name).get_by_text("✓✓ bob").is_visible()


def test_a_file_shows_how_much_of_it_has_arrived_also_after_a_new_start(browser, room):
    contents = [os.urandom(1_000) for _ in range(4)]
    manifest = encode_file_message(
        FileManifest(
            name="chart.pdf",
            size_bytes=4_000,
            part_size_bytes=1_000,
            content_hash=sha256(b"".join(contents)).digest(),
            part_hashes=tuple(sha256(each).digest() for each in contents),
        )
    )
    parts = [
        encode_file_message(FilePart(manifest_id=manifest_id(manifest), index=index, content=each))
        for index, each in enumerate(contents)
    ]
    half = 'progress[aria-label="Progress of chart.pdf"][value="2"][max="4"]'
    with room.other("bob") as bob:
        with room.page() as url, visited(browser, url) as page:
            room.say(bob, manifest, *parts[:2])
            page.locator(half).wait_for()
            assert page.get_by_role("link", name="Download chart.pdf").count() == 0
        with room.page() as url, visited(browser, url) as page:
            page.locator(half).wait_for()
            room.say(bob, *parts[2:])
            page.get_by_role("link", name="Download chart.pdf").wait_for()
            assert not page.locator("progress").is_visible()


def test_a_file_that_cannot_be_sent_is_said_to_be_so(browser, room, tmp_path):
    hidden = tmp_path / ".profile"
    hidden.write_bytes(b"x")
    with room.page() as url, visited(browser, url, may_complain=True) as page:
        page.get_by_text("connected", exact=True).wait_for()
        page.get_by_label("Send files").set_input_files(hidden)
        page.get_by_text(".profile was not sent: the file cannot be sent: it begins with a dot").wait_for()


def test_all_pages_show_the_same_and_an_absent_one_catches_up(browser, room):
    with room.page() as url, room.other("bob") as bob:
        with visited(browser, url) as first, visited(browser, url, SCREENS[1]) as second:
            write(first, "from the desk")
            write(second, "from the phone")
            for page in (first, second):
                own(page, "from the desk").get_by_text("✓✓ bob").wait_for()
                own(page, "from the phone").get_by_text("✓✓ bob").wait_for()
        room.say(bob, "while no page is open")
        with visited(browser, url) as page:
            page.get_by_text("while no page is open").wait_for()
            assert len(texts(page)) == 3


def test_a_tick_names_every_member_that_is_here_and_has_the_message(browser, room):
    with room.page() as url, room.other("bob") as bob, room.other("carol") as carol, visited(browser, url) as page:
        room.say(bob, "here")
        room.say(carol, "here, too")
        page.get_by_text("Members (2 here)").wait_for()
        write(page, "all aboard?")
        own(page, "all aboard?").get_by_text("✓✓ bob, carol").wait_for()
        page.reload()
        own(page, "all aboard?").get_by_text("✓✓ bob, carol").wait_for()


def test_a_text_that_a_page_repeats_after_a_lost_connection_is_sent_once(room):
    with room.page() as url, room.other("bob") as bob:
        live = url.replace("http", "ws") + "live"
        for _ in range(2):
            with connect_websocket(live) as socket:
                socket.send(json.dumps({"key": "web/1", "text": "once"}))
                while json.loads(socket.recv(timeout=PATIENCE_S))["type"] != "accepted":
                    continue
        with connect_websocket(live) as socket:
            socket.send(json.dumps({"key": "web/2", "text": "last"}))
            room.run(lambda: until(lambda: b"last" in bob.received))
        assert bob.received == [b"once", b"last"]


def test_earlier_messages_come_as_one_scrolls_up(browser, room):
    said = [f"number {number}" for number in range(150)]
    with room.page() as url, room.other("bob") as bob:
        room.say(bob, *said)
        with visited(browser, url) as page:
            page.get_by_text("number 149", exact=True).wait_for()
            assert "number 0" not in texts(page)
            page.get_by_role("button", name="Earlier messages").click()
            while "number 0" not in texts(page):
                page.locator("#talk").hover()
                page.mouse.wheel(0, -5_000)
            assert texts(page) == said


def test_who_is_here_is_listed(browser, room):
    with room.page() as url, visited(browser, url) as page:
        page.get_by_text("Members (0 here)").wait_for()
        with room.other("bob") as bob:
            room.say(bob, "hello")
            page.get_by_text("Members (1 here)").wait_for()
            page.get_by_text("bob is here").first.wait_for()
        page.get_by_text("Members (0 here)").wait_for()
        page.get_by_text("bob is away").first.wait_for()


async def staying(place: Any) -> None:
    """Run a node at a place until cancelled."""
    async with place.node():
        await asyncio.Event().wait()


def test_a_text_waits_for_the_node_and_is_sent_when_it_is_back(browser, room, at_place, place):
    settings = at_place("alice", room.folder / "alice.db")
    with room.page(settings) as url, visited(browser, url) as page:
        page.get_by_text("the node cannot be reached").wait_for()
        write(page, "patience")
        own(page, "patience").get_by_text("waiting for the node").wait_for()
        page.reload()
        own(page, "patience").get_by_text("waiting for the node").wait_for()
        with room.running(staying(place)):
            own(page, "patience").get_by_text("✓ sent").wait_for()
            assert texts(page) == ["patience"]


def test_a_new_start_shows_what_was_said_and_what_was_missed(browser, room):
    with room.other("bob") as bob:
        with room.page() as url, visited(browser, url) as page:
            write(page, "one")
            own(page, "one").get_by_text("✓✓ bob").wait_for()
        room.say(bob, "two")
        with room.page() as url, visited(browser, url) as page:
            page.get_by_text("two").wait_for()
            own(page, "one").get_by_text("✓✓ bob").wait_for()
            assert texts(page) == ["one", "two"]


def test_the_page_says_that_the_command_has_ended(browser, room):
    with ExitStack() as window:
        with room.page() as url:
            page = window.enter_context(visited(browser, url, may_complain=True))
            page.get_by_text("connected", exact=True).wait_for()
        page.get_by_text("fairway chat does not answer").wait_for()


def test_every_control_has_a_name_and_is_reached_by_the_keyboard(browser, room):
    with room.page() as url, visited(browser, url) as page:
        page.get_by_text("connected", exact=True).wait_for()
        controls = page.locator("button, input, textarea, a, summary, progress")
        assert controls.evaluate_all(UNNAMED) == []
        reached = []
        for _ in range(6):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert {"files", "text", "send", "SUMMARY"} <= set(reached)
        assert page.get_by_role("log").count() == 1
        assert page.get_by_role("status").inner_text() == "connected"


def answer(url: str, path: str | None = None, *, method: str = "GET", **headers: str) -> int:
    """Return the status of a request at the server of a page."""
    there = urlsplit(url)
    connection = http.client.HTTPConnection(there.hostname or "", there.port, timeout=PATIENCE_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, there.path if path is None else path, b"x" if method == "POST" else None, given)
    status = connection.getresponse().status
    connection.close()
    return status


def test_only_who_has_the_address_and_no_page_of_another_site_gets_an_answer(room):
    with room.page() as url:
        there = urlsplit(url)
        assert there.hostname == "127.0.0.1"
        own_origin, foreign = f"http://{there.netloc}", "http://evil.example"
        assert answer(url) == 200
        for path in ("/", "/live", "/file", "//", "/x" + there.path[1:], there.path[:-2] + "/", "/%00/"):
            assert answer(url, path) == 403
        for headers in (
            {"Host": f"evil.example:{there.port}"},
            {"Origin": foreign},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
        ):
            assert answer(url, **headers) == 403
            assert answer(url, there.path + "file?name=x", method="POST", **headers) == 403
        assert answer(url, there.path + "file?name=../x", method="POST", Origin=own_origin) == 400
        assert answer(url, there.path + "file?sender=bob&message=../../etc/passwd") == 404
        live = url.replace("http", "ws") + "live"
        with connect_websocket(live, additional_headers={"Origin": own_origin}) as socket:
            assert '"type": "state"' in socket.recv()
            socket.send("{")
            assert '"type": "refused"' in socket.recv()
            socket.send('{"key": "file/x/0", "text": "not with an id of a file"}')
            assert '"type": "refused"' in socket.recv()
        for address, origin in ((live, foreign), (live, "null"), (live.replace(there.path, "/x/"), own_origin)):
            with pytest.raises(InvalidStatus), connect_websocket(address, additional_headers={"Origin": origin}):
                pass


def test_the_page_may_load_nothing_from_elsewhere(room):
    with room.page() as url:
        there = urlsplit(url)
        connection = http.client.HTTPConnection(there.hostname or "", there.port, timeout=PATIENCE_S)
        connection.request("GET", there.path)
        policy = connection.getresponse().getheader("Content-Security-Policy") or ""
        connection.close()
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy


def test_a_port_in_use_is_named(room):
    with room.page() as url:
        port = urlsplit(url).port
        settings = room.make_settings("carol")
        with pytest.raises(ConfigurationError, match=f"port {port} .*choose another"):
            room.run(lambda: serve(settings, None, port or 0, print))


def test_a_store_in_a_missing_folder_is_refused_and_the_folder_not_made(room):
    settings = room.make_settings("carol", room.folder / "mistyped" / "carol.db")
    with pytest.raises(StorePathError, match=r"there is no directory .*mistyped: make it, or give another path"):
        room.run(lambda: serve(settings, None, 0, print))
    assert not (room.folder / "mistyped").exists()


@contextmanager
def command(address: str, store: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield its process and the address of its page."""
    options = {"retry_interval_ms": 200, "max_retry_attempts": 1_000, "sync_min_interval_ms": 100}
    arguments = ["--channel", "team", "--sender", "alice", "--node", address, "--options", json.dumps(options)]
    words = [sys.executable, "-m", "fairway", "chat", "--web", "--store", str(store), *arguments]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, next(line.strip() for line in process.stdout if "http://" in line)
        finally:
            process.kill()


@pytest.mark.full
def test_a_killed_command_has_the_file_that_the_page_gave_it_and_sends_it_once(room, place, at_place, tmp_path):
    content = os.urandom(2_500_000)
    store, outgoing = tmp_path / "alice.db", tmp_path / "alice.db.files"
    with room.running(staying(place)):
        with command(place.address, store) as (process, url):
            there = urlsplit(url)
            connection = http.client.HTTPConnection(there.hostname or "", there.port, timeout=PATIENCE_S)
            connection.request("POST", there.path + "file?name=chart.pdf", content)
            assert connection.getresponse().status == 204
            connection.close()
            entry = next(outgoing.glob(".outgoing-*/*.json"))
            room.run(lambda: until(lambda: json.loads(entry.read_bytes())["request_id"]))
            process.kill()
        shutil.copytree(entry.parent, tmp_path / "copy")
        with room.other("bob", tmp_path / "of bob", at_place("bob")) as bob:
            with command(place.address, store) as (process, url):
                room.run(lambda: until(lambda: bob.saved and not list(entry.parent.iterdir())))
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE_S) == 0
            assert bob.saved[0].read_bytes() == content
            count = len(bob.received)
            # As if it had been killed between the delivery and its note.
            shutil.copytree(tmp_path / "copy", entry.parent, dirs_exist_ok=True)
            with command(place.address, store):
                room.run(lambda: until(lambda: not list(entry.parent.iterdir())))
            assert len(bob.received) == count


@pytest.mark.full
def test_a_page_that_does_not_read_costs_little_memory(room):
    text = "x" * 60_000
    with room.page() as url, room.other("bob") as bob:
        live = url.replace("http", "ws") + "live"
        with (
            connect_websocket(live, max_queue=1, max_size=None) as stuck,
            connect_websocket(live, max_size=None) as reader,
        ):
            room.say(bob, *(f"{number} {text}" for number in range(400)))
            last = ""
            while "399 x" not in last:
                last = str(reader.recv(timeout=PATIENCE_S))
            kinds = [json.loads(stuck.recv(timeout=PATIENCE_S))["type"]]
            while "399 x" not in (change := str(stuck.recv(timeout=PATIENCE_S))):
                kinds.append(json.loads(change)["type"])
            assert len(kinds) < 400  # the oldest changes were dropped, and the state came anew
            assert json.loads(change)["type"] == "state" or "state" in kinds[1:]

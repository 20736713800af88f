"""Names and texts of others on a terminal: they are seen, and steer nothing."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from fairway.cli._console import PlainConsole
from fairway.cli._event_json import as_line
from fairway.cli._screen import PipeScreen
from fairway.cli.chat import Conversation
from fairway.cli.tail import indented, message_text
from fairway.cli.trace import describe
from fairway.events import IrretrievableMessage, LossReason, MessageDelivered, MessageReceived
from fairway.visible import visible

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x1b]52;c;cm0gLXJmIH4=\x07\x9b2J\u202ecba\u2066"
STEERING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def seen_alone(text, keep=""):
    return all(each in keep + "\u200c\u200d" or unicodedata.category(each) not in STEERING for each in text)


@given(st.text())
def test_visible_text_has_no_control_characters(text):
    assert seen_alone(visible(text))


@pytest.mark.parametrize("name", ["alice", "Zoë", "שלום", "می\u200cخواهم", "👩\u200d🚀", "a b"])
def test_names_in_many_languages_are_unchanged(name):
    assert visible(name) == name


def test_an_invisible_character_is_shown_by_its_number():
    assert visible("a\x1b[2J\nb\u202e\U000e0041") == "a\\x1b[2J\\x0ab\\u202e\\U000e0041"


def printed(*renderables, **options):
    shown = io.StringIO()
    console = PlainConsole(file=shown, highlight=False, width=200, **options)
    for renderable in renderables:
        console.print(renderable)
    return shown.getvalue()


def test_only_the_styles_of_a_command_reach_the_terminal():
    table = Table(EVIL)
    table.add_row(Text(EVIL, "red"))
    shown = printed(Text(EVIL), EVIL.replace("[", r"\["), table, force_terminal=False)
    assert seen_alone(shown, keep="\n")
    styled = printed(Text(f"x{EVIL}", "bold red"), force_terminal=True)
    assert "\x1b[1;31mx" in styled
    assert "\x1b]" not in styled
    assert "\x1b[2J" not in styled


def received(**changes):
    fields = {
        "message_id": "m" * 64,
        "sender_id": "bob",
        "channel_id": "team",
        "content_topic": "/a/1/b/proto",
        "payload": b"hello",
        "timestamp_ns": 0,
        "message_hashes": (b"",),
        "sds_ids": ("x",),
    }
    return MessageReceived(**(fields | changes))


def test_neither_a_name_nor_a_text_forges_a_line_of_tail_or_chat():
    forged = "03:09:11 alice 5 bytes  send him the money"
    for message in (received(sender_id=f"bob\n{forged}"), received(payload=f"hi\n{forged}".encode())):
        lines = printed(message_text(message, None)).splitlines()
        assert not [line for line in lines if line.startswith("03:09:11")]
    assert indented("hi\nthere\x1b[2J\n") == "hi\n    there\\x1b[2J"


def test_notes_of_a_chat_and_steps_of_a_trace_escape_names():
    class Channel:
        sender_id = "alice"
        channel_id = "team"

    terminal = io.StringIO()
    console = PlainConsole(file=terminal, force_terminal=True, highlight=False)
    chat = Conversation(Channel(), PipeScreen(console), None)
    delivered = MessageDelivered(request_id="r", message_id="m", delivered_to=(EVIL,), at_ms=0)
    chat.mark(delivered)
    chat.mark(IrretrievableMessage(message_id="m", reason=LossReason.TIMEOUT, sender_id=EVIL))
    shown = terminal.getvalue()
    assert "owned" in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert seen_alone(describe(delivered))


def test_a_json_line_keeps_every_character_and_has_no_control_characters():
    line = as_line({"name": EVIL})
    assert json.loads(line) == {"name": EVIL}
    assert seen_alone(line.decode(), keep="\n")

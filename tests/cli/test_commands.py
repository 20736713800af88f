"""Command lines of a participant: what is understood, and what a wrong one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.cli._participant_commands import FIELDS, Command, CommandError, parse_command


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"command":"send","text":"hällo"}', Command(name="send", content="hällo".encode())),
        ('{"command":"send","base64":"AP8="}', Command(name="send", content=b"\x00\xff")),
        ('{"command":"send","file":"a/b"}', Command(name="send", content=Path("a/b"))),
        (
            '{"command":"send","text":"x","request_id":"r","count":2,"by":["bob"],"tag":{"n":[1]}}',
            Command(name="send", content=b"x", request_id="r", count=2, by=("bob",), tag={"n": [1]}),
        ),
        ('{"command":"send_ephemeral","text":""}', Command(name="send_ephemeral", content=b"")),
        ('{"command":"statistics","tag":1}', Command(name="statistics", tag=1)),
        ('{"command":"status"}', Command(name="status")),
        ('{"command":"stop"}', Command(name="stop")),
    ],
)
def test_a_line_is_parsed_as_a_command(line: str, expected: Command):
    assert parse_command(line.encode()) == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("rubbish", "the commands are send, send_ephemeral, statistics, status, stop"),
        ("[" * 100_000, "not JSON"),
        ("7", "not a JSON object"),
        ("{}", "the field 'command' with a text is missing"),
        ('{"command":"sned"}', "did you mean 'send'?"),
        ('{"command":"send"}', "needs exactly one of text, base64, file; it has none of them"),
        ('{"command":"send","text":"a","file":"b"}', "it has text and file"),
        ('{"command":"send","text":7}', "text must be a text, not 7"),
        ('{"command":"send","base64":"not base64"}', "base64 cannot be turned into bytes"),
        ('{"command":"send","text":"\\ud800"}', "text cannot be turned into bytes"),
        ('{"command":"send","text":"a","cuont":1}', "did you mean 'count'? its fields are text, base64"),
        ('{"command":"send","text":"a","count":"2"}', "count must be a whole number"),
        ('{"command":"send","text":"a","count":true}', "count must be a whole number"),
        ('{"command":"send","text":"a","by":"bob"}', "by must be a list of sender ids"),
        ('{"command":"send","text":"a","request_id":1}', "request_id must be a text"),
        ('{"command":"send_ephemeral","text":"a","count":2}', "send_ephemeral has no field 'count'"),
        ('{"command":"stop","text":"a"}', "stop has no field 'text'"),
    ],
)
def test_a_wrong_line_raises_an_error_that_lists_the_choices(line: str, told: str):
    with pytest.raises(CommandError) as error:
        parse_command(line.encode())
    assert told in str(error.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields_of_commands = st.sampled_from(sorted({field for known in FIELDS.values() for field in known}))


@given(st.binary(max_size=50) | st.dictionaries(fields_of_commands, json_values, max_size=4))
def test_any_line_is_a_command_or_a_command_error(line: bytes | dict[str, object]):
    if isinstance(line, dict):
        line = json.dumps({"command": "send", **line}).encode()
    try:
        assert parse_command(line).name in FIELDS
    except CommandError as error:
        assert str(error)  # noqa: PT017 - either outcome is right

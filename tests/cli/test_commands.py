"""The command lines of `fairway participant`: what they mean, and what is wrong with them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.cli.participant import (
    Command,
    SendCommand,
    SendEphemeralCommand,
    StatisticsCommand,
    StopCommand,
    parse_command,
)
from fairway.errors import ConfigurationError


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"command":"send","base64":"AP8="}', SendCommand(base64=b"\x00\xff")),
        (
            '{"command":"send","text":"x","request_id":"r","count":2,"by":["bob"],"tag":{"n":[1]}}',
            SendCommand(text="x", request_id="r", count=2, by=("bob",), tag={"n": [1]}),
        ),
        ('{"command":"send_ephemeral","file":"a/b"}', SendEphemeralCommand(file="a/b")),
        ('{"command":"statistics","tag":1}', StatisticsCommand(tag=1)),
        ('{"command":"stop"}', StopCommand()),
    ],
)
def test_a_line_is_parsed_as_a_command(line: str, expected: Command):
    assert parse_command(line.encode()) == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("rubbish", "JSON is malformed"),
        ("[" * 100_000, "levels of nesting"),
        ("7", "Expected `object`"),
        ("{}", "missing required field `command`"),
        ('{"command":"sned"}', "Invalid value 'sned'"),
        ('{"command":"send"}', "exactly one of text, base64 and file"),
        ('{"command":"send","text":"a","file":"b"}', "exactly one of text, base64 and file"),
        ('{"command":"send","text":7}', "Expected `str | null`, got `int`"),
        ('{"command":"send","base64":"not base64"}', "Invalid base64"),
        ('{"command":"send","text":"a","cuont":1}', "unknown field `cuont`"),
        ('{"command":"send","text":"a","count":true}', "Expected `int`, got `bool`"),
        ('{"command":"send","text":"a","by":"bob"}', "Expected `array`"),
        ('{"command":"send_ephemeral","text":"a","count":2}', "unknown field `count`"),
    ],
)
def test_a_wrong_line_raises_an_error_that_lists_the_commands(line: str, told: str):
    with pytest.raises(ConfigurationError, match="the commands are send, send_ephemeral, statistics and stop") as error:
        parse_command(line.encode())
    assert told in str(error.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields_of_commands = st.sampled_from(["text", "base64", "file", "request_id", "count", "by", "tag"])


@given(st.binary(max_size=50) | st.dictionaries(fields_of_commands, json_values, max_size=4))
def test_any_line_is_a_command_or_a_configuration_error(line: bytes | dict[str, object]):
    if isinstance(line, dict):
        line = json.dumps({"command": "send", **line}).encode()
    try:
        assert isinstance(parse_command(line), Command)
    except ConfigurationError as error:
        assert str(error)  # noqa: PT017 - either outcome is right

"""Events as JSON: every event, every field, nothing that JSON cannot hold."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields
from enum import Enum
from typing import Any, get_type_hints

import pytest

from fairway.cli._event_json import as_line, event_as_json
from fairway.events import (
    EVENT_NAMES,
    ChunkInfo,
    DropReason,
    EphemeralMessageDropped,
    MessageReceived,
    MessageSent,
)

HASH = bytes(range(32))


def made(kind: type) -> object:
    """Return an event of a kind, each field filled with something of its type."""
    examples = {str: "x", int: 7, bool: True, bytes: b"\x00\xff", ChunkInfo: ChunkInfo(chunk_index=2, total_chunks=5)}
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, Enum):
            values[name] = next(iter(hint))
        elif hint in examples:
            values[name] = examples[hint]
        elif str(hint).startswith("tuple"):
            values[name] = (examples[hint.__args__[0]],)
        else:
            values[name] = None
    return kind(**values)


@pytest.mark.parametrize("kind", EVENT_NAMES, ids=lambda kind: kind.__name__)
def test_every_event_becomes_a_line_of_json_with_all_its_fields(kind: type):
    told = json.loads(as_line(event_as_json(made(kind))))
    assert told["event"] == EVENT_NAMES[kind]
    assert told["type"] == kind.__name__
    assert {field.name for field in fields(kind)} - {"payload"} <= set(told)


def test_an_event_has_size_and_hash_of_a_payload_and_its_bytes_on_request():
    event = MessageReceived(
        message_id="m",
        sender_id="bob",
        channel_id="team",
        content_topic="/a/1/b/proto",
        payload=b"\x00secret",
        timestamp_ns=5,
        message_hashes=(HASH,),
        sds_ids=("s1", "s2"),
    )
    told = event_as_json(event)
    assert told["size"] == 7
    assert told["sha256"] == hashlib.sha256(b"\x00secret").hexdigest()
    assert told["message_hashes"] == [HASH.hex()]
    assert told["sds_ids"] == ["s1", "s2"]
    assert "payload" not in told
    assert "payload_base64" not in told
    assert base64.b64decode(event_as_json(event, with_payload=True)["payload_base64"]) == b"\x00secret"


def test_hashes_are_hex_and_choices_are_their_text():
    sent = MessageSent(
        request_id="r", message_id="m", chunk_info=ChunkInfo(chunk_index=1, total_chunks=3), message_hash=HASH
    )
    assert event_as_json(sent)["message_hash"] == HASH.hex()
    assert event_as_json(sent)["chunk_info"] == {"chunk_index": 1, "total_chunks": 3, "is_parity": False}
    dropped = EphemeralMessageDropped(
        request_id="r", message_id="m", reason=DropReason.NOT_READY, rate_limit_utilization=3
    )
    assert event_as_json(dropped)["reason"] == "not_ready"


def test_an_object_becomes_one_line_whatever_it_contains():
    line = as_line({"text": "a\nb\u2028\udc80ü"})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["text"].startswith("a\nb\u2028")

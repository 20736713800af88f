"""Known answers about SDS messages: ids, bytes, Lamport timestamps and the order of the history (Waku wire)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from tests.conformance.cases import Case, MalformedCaseError, refused, same, shown
from tests.conformance.collation import history_key
from tests.conformance.protobuf_fields import BYTES, VARINT, fields_of
from tests.conformance.report import Check

from fairway.errors import DecodeError
from fairway.options import IdRule, SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.message_id import make_message_id
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage

_DEFAULTS: Final = SdsConfig()
_COLLATION: Final = "js-waku orders equal timestamps by the collation of its locale; fairway orders them by code point"

_LENIENT: Final = "js-waku ignores wire types and takes any bytes for text; fairway refuses what is not protobuf"
_TEXTS: Final = frozenset({1, 2, 3})
_WIRE_TYPES: Final = {1: BYTES, 2: BYTES, 3: BYTES, 10: VARINT, 11: BYTES, 12: BYTES, 13: BYTES, 20: BYTES}
"""Of the fields of an SDS message (SDS, "Message")."""
_GROUPS: Final = frozenset({3, 4})
"""Wire types that protobuf has given up."""


def check_message_id(case: Case) -> Iterator[Check]:
    """Check the ids of logical messages."""
    payload, text = case.octets("payload_hex"), case.maybe_text("payload_utf8")
    if text is not None:
        yield same(f"UTF-8 of {text!r}", payload, text.encode())
    own = make_message_id(IdRule.PAYLOAD, sender_id="", lamport=0, content=payload, now_ms=0, sequence=0)
    yield same(f"id of {shown(payload)}", case.text("messageId"), own)


def check_message(case: Case) -> Iterator[Check]:
    """Check messages that js-waku encoded: the bytes, what they decode to, and the bytes of that."""
    encoded = case.octets("encoded_hex")
    yield same("len", case.integer("len"), len(encoded))
    yield same("sha256", case.octets("sha256"), sha256(encoded).digest())
    yield from _decoded(case, encoded)
    if case.value("decoded") is not None:
        yield same("encoded again", encoded, WAKU_SDS.encode(WAKU_SDS.decode(encoded)))


def check_decode_only(case: Case) -> Iterator[Check]:
    """Check bytes that no encoder produces, and what js-waku reads in them."""
    yield from _decoded(case, case.octets("hex"))


def _is_protobuf(encoded: bytes) -> bool:
    """Return whether known fields have the wire types of the specification, and texts are UTF-8."""
    try:
        for field in fields_of(encoded):
            if field.wire_type != _WIRE_TYPES.get(field.number, field.wire_type) or field.wire_type in _GROUPS:
                return False
            if field.number in _TEXTS:
                field.content.decode()
    except UnicodeDecodeError:
        return False
    except DecodeError:
        return True  # broken off: nobody reads it
    return True


def _decoded(case: Case, encoded: bytes) -> Iterator[Check]:
    if not _is_protobuf(encoded):
        case.value("decoded")
        yield Check("decoded", ok=False, differs_on_purpose=_LENIENT)
        return
    if case.value("decoded") is None:
        yield refused("js-waku refuses it, so do we", lambda: WAKU_SDS.decode(encoded), DecodeError)
        return
    expected, message = case.child("decoded"), WAKU_SDS.decode(encoded)
    yield same("kind", expected.text("kind"), message.kind.value)
    yield same("senderId", expected.text("senderId"), message.sender_id)
    yield same("messageId", expected.text("messageId"), message.message_id)
    yield same("channelId", expected.text("channelId"), message.channel_id)
    yield same("lamportTimestamp", expected.maybe_integer("lamportTimestamp"), message.lamport_timestamp)
    yield same("causalHistory", _entries(expected, "causalHistory"), message.causal_history)
    yield same("repairRequest", _entries(expected, "repairRequest"), message.repair_request)
    # Whether content is empty or absent makes no difference to SDS; js-waku reports both as absent.
    yield same("content", expected.maybe_octets("content") or None, message.content or None)
    yield from _bloom(expected, message)


def _entries(case: Case, key: str) -> tuple[HistoryEntry, ...]:
    return tuple(
        HistoryEntry(entry.text("messageId"), entry.maybe_octets("retrievalHint"), entry.maybe_text("senderId"))
        for entry in case.children(key)
    )


def _bloom(expected: Case, message: SdsMessage) -> Iterator[Check]:
    field = message.bloom_filter
    described = [
        key for key in ("bloomFilter", "bloomFilter_sha256", "bloomFilter_len", "bloom_bits") if key in expected
    ]
    if not described:
        raise MalformedCaseError("nothing says what the bloom filter is")
    if "bloomFilter" in described:
        yield same("bloomFilter", expected.maybe_octets("bloomFilter"), field)
    if "bloomFilter_sha256" in described:
        digest = None if field is None else sha256(field).digest()
        yield same("bloomFilter_sha256", expected.maybe_octets("bloomFilter_sha256"), digest)
    if "bloomFilter_len" in described:
        length = None if field is None else len(field)
        yield same("bloomFilter_len", expected.maybe_integer("bloomFilter_len"), length)
    if "bloom_bits" in described:
        yield same("bloom_bits", expected.integers("bloom_bits"), _bits(field))


def _bits(field: bytes | None) -> list[int] | None:
    parameters = BloomParameters.of(_DEFAULTS.bloom_capacity, _DEFAULTS.bloom_error_rate)
    received = None if field is None else WAKU_SDS.read_bloom(field, parameters)
    return None if received is None else BloomFilter(parameters, bits=received.words).set_positions()


def check_lamport(case: Case) -> Iterator[Check]:
    """Check how the Lamport timestamp of a sender moves."""
    now_ms, before = case.integer("now_ms"), case.integer("before")
    channel = MessageChannel("channel", "sender", now_ms=now_ms)
    channel.lamport = before
    after = channel.send(b"content", now_ms=now_ms).lamport_timestamp
    yield same(f"{before} at {now_ms}", case.integer("after"), after)


def check_history_order(case: Case) -> Iterator[Check]:
    """Check the order in which js-waku keeps messages."""
    locale = case.text("locale")
    if not locale.startswith("en"):
        raise MalformedCaseError(f"the collation of the locale {locale!r} is not known, only that of English")
    pushed, resulting = _stamped(case, "pushed"), _stamped(case, "resulting")
    ordered = _kept_first(sorted(pushed, key=lambda one: history_key(one[1], one[0])))
    own = _kept_first(sorted(pushed, key=lambda one: (one[1], one[0])))
    check = same("resulting", resulting, ordered)
    yield check if own == resulting or not check.ok else Check(check.name, ok=True, differs_on_purpose=_COLLATION)


def _stamped(case: Case, key: str) -> list[tuple[str, int]]:
    pairs = []
    for item in case.items(key):
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
            raise MalformedCaseError(f"the field {key!r} should be a list of [id, timestamp]")
        pairs.append((item[0], int(item[1])))
    return pairs


def _kept_first(ordered: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Drop all but the first message of each id, as the history does."""
    first: dict[str, int] = {}
    for message_id, lamport in ordered:
        first.setdefault(message_id, lamport)
    return list(first.items())

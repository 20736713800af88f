"""First inputs: what js-waku, nim-sds and fairway itself really send, from the known answers of the tests.

They are made anew for each run, so that the repository holds the recipe and not thousands of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from fairway.options import Profile
from fairway.protocol.effects import Publish
from fairway.protocol.encryption.payload_frame import encode_frame as encode_inner_frame
from fairway.protocol.encryption.secp256k1 import PrivateKey
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.protocol.stack import Stack
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.file_message import FileManifest, FilePart, WholeFile, encode_file_message
from fairway.wire.relay_shards import BitOrder, RelayShards, encode_bit_vector, encode_index_list
from fairway.wire.sds import NIM_SDS, WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS
from fairway.wire.waku_message import RateLimitProof, encode_rate_limit_proof
from fuzz import reassembly, stacks
from fuzz.ciphers import ECIES, SIGNING_KEY, SYMMETRIC, encrypted_by
from fuzz.decoders import EXPECTED_BLOOM
from fuzz.small_options import SEGMENTATION, small_options
from fuzz.wire_fields import Field, bytes_field, varint_field, write_fields

VECTORS: Final = Path(__file__).parents[1] / "tests" / "vectors"
_LARGEST_SEED_BYTES: Final = 4_096
_BIT_ORDERS: Final[tuple[BitOrder, ...]] = ("node", "js-waku", "specification")


def _hex_strings(value: Any) -> Iterator[bytes]:
    """Yield every text in a JSON value that is bytes in hexadecimal, wherever it stands."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _hex_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _hex_strings(inner)
    elif isinstance(value, str) and value and not len(value) % 2:
        try:
            yield bytes.fromhex(value)
        except ValueError:
            return


def _known(*names: str) -> list[bytes]:
    found: dict[bytes, None] = {}
    for name in names:
        found.update(dict.fromkeys(_hex_strings(json.loads((VECTORS / name).read_text(encoding="utf-8")))))
    return [data for data in found if len(data) <= _LARGEST_SEED_BYTES]


def message_seeds() -> Iterator[bytes]:
    """Yield encodings of everything that `fairway.wire` decodes, and topics."""
    yield from _known(
        "conformance/js_waku.json",
        "conformance/js_waku_more.json",
        "conformance/nim_sds.json",
        "conformance/segmentation.json",
    )
    bloom = BloomFilter(EXPECTED_BLOOM)
    bloom.insert("an id")
    entries = (HistoryEntry("a", bytes(32), "bob"), HistoryEntry("b", None, None), HistoryEntry("c", b"", ""))
    for codec in (WAKU_SDS, NIM_SDS):
        field = codec.write_bloom(bytes(bloom), EXPECTED_BLOOM)
        yield field
        yield codec.encode(
            SdsMessage(
                message_id="d",
                sender_id="alice",
                channel_id="team",
                lamport_timestamp=1_700_000_000_000,
                causal_history=entries,
                bloom_filter=field,
                repair_request=entries[:1],
                content=b"hello",
            )
        )
    yield encode_rate_limit_proof(RateLimitProof(**dict.fromkeys(RateLimitProof.__slots__, bytes(32))))
    shards = RelayShards(cluster_id=1, shards=frozenset(range(0, 1_024, 9)))
    yield encode_index_list(shards)
    for order in _BIT_ORDERS:
        yield encode_bit_vector(shards, order)
    yield encode_file_message(WholeFile(name="a.txt", media_type="text/plain", content=b"hello"))
    hashes = (bytes(32), bytes(32))
    yield encode_file_message(
        FileManifest(name="a", size_bytes=3, part_size_bytes=2, content_hash=bytes(32), part_hashes=hashes)
    )
    yield encode_file_message(FilePart(manifest_id=bytes(32), index=1, content=b"x"))
    yield b"/waku/2/rs/16/32"
    yield b"/0/app/1/name/proto"
    yield b"/app/1/name/proto"


def cipher_seeds() -> Iterator[bytes]:
    """Yield encrypted payloads, frames as members make them, and plain payloads."""
    yield from _known("payload_v1.json")
    for payload in (b"", b"hello", bytes(300)):
        yield from (bytes([which, 20 * which, 0, 1]) + payload for which in range(4))
        for cipher in (SYMMETRIC, ECIES):
            yield encrypted_by(cipher, payload)
        for signer in (None, PrivateKey(SIGNING_KEY)):
            yield encode_inner_frame(payload, signer, bytes)


def reassembly_seeds() -> Iterator[bytes]:
    """Yield scripts in which messages come whole, with losses, backwards, twice, and with lies."""

    def payload_step(payload: bytes, mask: int, **others: int) -> Field:
        part = reassembly.Part
        fields = [varint_field(part.SENDER, others.get("sender", 0)), bytes_field(part.BYTES, payload)]
        fields += [varint_field(part.MASK, mask), varint_field(part.REVERSED, others.get("backwards", 0))]
        return bytes_field(reassembly.Step.PAYLOAD, write_fields(fields))

    every = (1 << 64) - 1
    long, short = bytes(range(256)) * 4, b"a message that fits one segment"
    pause = varint_field(reassembly.Step.ELAPSED, 30_000)
    yield write_fields([payload_step(long, every), payload_step(short, every)])
    yield write_fields([payload_step(long, every ^ 0b101), payload_step(long, every, backwards=1)])
    yield write_fields([payload_step(long, 0b11), pause, payload_step(long, every ^ 0b11)])
    yield write_fields([payload_step(long[index : index + 600], 0b1, sender=index) for index in range(16)])
    yield write_fields([payload_step(long[index : index + 800], 0b1111, sender=index) for index in range(9)])
    yield write_fields([payload_step(bytes(1_000) + long[:index], every ^ 0b100) for index in range(8)])
    for segment_format in (WAKU_SEGMENTS, LIP_243):
        parts = Segmenter(SEGMENTATION, segment_format).split(long).segments
        contents = [
            bytes_field(
                reassembly.Step.CONTENT,
                write_fields(
                    [bytes_field(reassembly.Part.BYTES, part.content), varint_field(reassembly.Part.ORDER, 1)]
                ),
            )
            for part in parts
        ]
        yield write_fields(contents)
        yield write_fields([*contents[::2], pause, *contents])


def _script(*steps: tuple[stacks.Step, int | bytes]) -> bytes:
    return write_fields(
        bytes_field(step, value) if isinstance(value, bytes) else varint_field(step, value) for step, value in steps
    )


def _forged(index: int, appended: bytes) -> bytes:
    forgery = stacks.Forgery
    return write_fields([varint_field(forgery.INDEX, index), bytes_field(forgery.APPENDED, appended)])


def stack_seeds(profile: Profile) -> Iterator[bytes]:
    """Yield conversations: in order, out of order, with losses, forged, across restarts and a rate limit."""
    step = stacks.Step
    long = bytes(range(256)) * 3
    talk: list[tuple[stacks.Step, int | bytes]] = [
        (step.PEER_SENDS, b"one"),
        (step.PEER_SENDS, b"two"),
        (step.PEER_SENDS, long),
        (step.EPHEMERAL, b"now"),
    ]
    arrive: list[tuple[stacks.Step, int | bytes]] = [(step.ARRIVES, index) for index in range(9)]
    answer: list[tuple[stacks.Step, int | bytes]] = [
        (step.PEER_RECEIVES, 0),
        (step.PEER_SENDS, b"yes"),
        (step.PEER_WAITS, 9_000),
    ]
    yield _script(*talk, *arrive)
    yield _script(*talk, *reversed(arrive), (step.ELAPSED, 0))
    yield _script(*talk, *arrive[::2], (step.ELAPSED, 40_000), *arrive)
    yield _script(
        (step.SEND, b"mine"), (step.SEND, long), (step.ANSWERED, 0), *answer, *arrive, *[(step.ELAPSED, 0)] * 9
    )
    yield _script((step.SEND, b"mine"), *[(step.ELAPSED, 0)] * 20)
    yield _script(*talk, *arrive[2:5], (step.RESTART, 0), *arrive, (step.RESTART, 0), (step.SEND, long))
    yield _script((step.QUOTA, 2), (step.SEND, long), (step.CONNECTED, 0), (step.CONNECTED, 1), (step.ELAPSED, 10_000))
    slow = [(step.CIPHER, 0)] * 12
    yield _script((step.SEND, long), *talk, *arrive, *slow, (step.SEND, b"mine"), (step.CIPHER, 1), *slow)
    yield _script(
        *talk, *arrive, (step.SEND, long), *[(step.CIPHER, 2 * index) for index in range(9)], (step.RESTART, 0)
    )
    # Of many messages only the last comes, too late to cite the first: the filter alone tells that the peer has it.
    late = [(step.PEER_SENDS, b"%d" % index) for index in range(8)]
    sender_field, id_field = (7, 1) if profile is Profile.LOGOS else (1, 2)
    others = [
        write_fields([bytes_field(sender_field, name), bytes_field(id_field, name)]) for name in (b"carol", b"dan")
    ]
    forged = [(step.ARRIVES_FORGED, _forged(7, other)) for other in others]
    yield _script((step.SEND, b"mine"), (step.PEER_RECEIVES, 0), *late, (step.ARRIVES, 7), *forged, (step.ELAPSED, 0))
    # Overrides of fields 10 and 20 (js-waku), 2 and 5 (nim-sds): the Lamport timestamp and the content.
    for appended in (b"\x50\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xa2\x01\x00", b"\x10\x00", b"\x2a\x00"):
        yield _script(*talk, *[(step.ARRIVES_FORGED, _forged(index, appended)) for index in range(6)], *arrive)
    codec = NIM_SDS if profile is Profile.LOGOS else WAKU_SDS
    sds = small_options(profile).sds
    parameters = BloomParameters.of(sds.bloom_capacity, sds.bloom_error_rate)
    full = codec.write_bloom(b"\xff" * parameters.byte_length, parameters)
    for sender in ("mallory", stacks.SENDER):
        lies = [
            SdsMessage(
                message_id=f"id {index}",
                sender_id=sender,
                channel_id=stacks.CHANNEL,
                lamport_timestamp=index,
                causal_history=(HistoryEntry(f"id {index + 1}", bytes(32), sender), HistoryEntry(f"id {index % 3}")),
                bloom_filter=full,
                repair_request=(HistoryEntry("id 0", None, "bob"),),
                content=b"x" * (index % 4),
            )
            for index in range(12)
        ]
        yield _script(
            (step.SEND, b"mine"),
            *[(step.SDS, codec.encode(message)) for message in lies],
            *[(step.ELAPSED, 0)] * 12,
        )
        # Messages that cite each other in a circle.
        circle = [replace(message, message_id=f"id {index % 3}") for index, message in enumerate(lies[1:4], 1)]
        yield _script(*[(step.SDS, codec.encode(message)) for message in circle], *[(step.ELAPSED, 40_000)] * 3)
    yield _script(*[(step.MESSAGE, encoded) for encoded in _published(profile)])


def _published(profile: Profile) -> list[bytes]:
    """Return the WakuMessages in which a participant sends a long message."""
    stack = Stack(stacks.CHANNEL, "carol", stacks.TOPIC, small_options(profile), now_ms=stacks.BEGIN_MS, seed=bytes(16))
    effects = stack.send(bytes(400), stacks.BEGIN_MS).effects
    return [effect.encoded for effect in effects if isinstance(effect, Publish)]

"""A decoder returns a value or raises `DecodeError` for any bytes.

Each decoder in `DECODERS` gets arbitrary bytes, and valid encodings of all decoders that were cut, spliced and changed,
because most broken messages are nearly valid.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.wire import (
    file_message,
    lightpush,
    metadata,
    peer_exchange,
    relay_shards,
    sds,
    segment,
    store,
    store_sync,
    waku_message,
)
from fairway.wire import filter as waku_filter

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "conformance" / "js_waku.json").read_text())


@dataclass(frozen=True)
class Decoder:
    """A decoder and some valid input for it."""

    decode: Callable[[bytes], object]
    samples: list[bytes]
    name: str = ""

    def __str__(self):
        return self.name or self.decode.__name__


def encoded(vectors):
    return [bytes.fromhex(vector["encoded_hex"]) for vector in vectors]


PROOF = waku_message.RateLimitProof(**dict.fromkeys(waku_message.RateLimitProof.__slots__, bytes(32)))

SDS = {
    "message_id": "id",
    "sender_id": "alice",
    "channel_id": "team",
    "lamport_timestamp": 7,
    "causal_history": (sds.HistoryEntry("before", b"hint", "bob"),),
    "bloom_filter": bytes(8),
}
SEGMENT = segment.Segment(
    payload_hash=bytes(32),
    index=1,
    data_count=2,
    parity_count=1,
    is_parity=False,
    payload=b"x",
    payload_length=2,
)
SYNC_IDS = tuple(store_sync.SyncId(time_ns, bytes(32)) for time_ns in (1_000, 1_300, 1_302))

DECODERS = [
    Decoder(waku_message.decode_waku_message, encoded(VECTORS["waku_message"])),
    Decoder(waku_message.decode_rate_limit_proof, [waku_message.encode_rate_limit_proof(PROOF)]),
    Decoder(lightpush.decode_lightpush_request, encoded(VECTORS["lightpush"]["requests_v3"])),
    Decoder(lightpush.decode_lightpush_response, encoded(VECTORS["lightpush"]["responses_v3"])),
    Decoder(lightpush.decode_push_request_v2, encoded(VECTORS["lightpush"]["v2"][:1])),
    Decoder(lightpush.decode_push_response_v2, encoded(VECTORS["lightpush"]["v2"][1:])),
    Decoder(waku_filter.decode_filter_subscribe_request, encoded(VECTORS["filter"]["requests"])),
    Decoder(waku_filter.decode_filter_subscribe_response, encoded(VECTORS["filter"]["responses"])),
    Decoder(waku_filter.decode_message_push, encoded(VECTORS["filter"]["push"])),
    Decoder(store.decode_store_query_request, encoded(VECTORS["store"]["requests"])),
    Decoder(store.decode_store_query_response, encoded(VECTORS["store"]["responses"])),
    Decoder(
        store.decode_stored_message,
        [store.encode_stored_message(store.StoredMessage(message_hash=bytes(32)))],
    ),
    Decoder(
        metadata.decode_metadata,
        [metadata.encode_metadata(metadata.WakuMetadata(cluster_id=1, shards=(0, 300)))],
    ),
    Decoder(
        file_message.decode_file_message,
        [
            file_message.encode_file_message(message)
            for message in (
                file_message.WholeFile(name="a", content=b"x"),
                file_message.FileManifest(
                    name="a", size_bytes=3, part_size_bytes=2, content_hash=bytes(32), part_hashes=(bytes(32),) * 2
                ),
                file_message.FilePart(manifest_id=bytes(32), index=1, content=b"x"),
            )
        ],
    ),
    *(
        Decoder(codec.decode, [codec.encode(sds.SdsMessage(**SDS, content=content)) for content in (b"x", None)], name)
        for name, codec in (("waku sds", sds.WAKU_SDS), ("nim sds", sds.NIM_SDS))
    ),
    *(
        Decoder(
            segments.decode,
            [segments.encode(SEGMENT if segments is segment.LIP_243 else replace(SEGMENT, parity_count=0))],
            segments.name,
        )
        for segments in (segment.WAKU_SEGMENTS, segment.LIP_243)
    ),
    Decoder(
        peer_exchange.decode_request, [peer_exchange.encode_request(peer_exchange.PeerExchangeRequest(peer_count=5))]
    ),
    Decoder(
        peer_exchange.decode_response,
        [peer_exchange.encode_response(peer_exchange.PeerExchangeResponse(records=(b"record",)))],
    ),
    Decoder(
        store_sync.decode_sync_payload,
        [
            store_sync.encode_sync_payload(
                store_sync.SyncPayload(
                    pubsub_topics=("/waku/2/rs/2/0",),
                    ranges=(
                        store_sync.SyncRange(SYNC_IDS[0], SYNC_IDS[1], bytes(range(32))),
                        store_sync.SyncRange(SYNC_IDS[1], SYNC_IDS[2], store_sync.ItemSet(SYNC_IDS[1:2], False)),
                    ),
                )
            )
        ],
    ),
    Decoder(
        store_sync.decode_transfer,
        [store_sync.encode_transfer(store_sync.Transfer(pubsub_topic="topic", message_bytes=b"x"))],
    ),
    Decoder(
        relay_shards.decode_relay_shards,
        [
            *(bytes.fromhex(vector["hex"]) for vector in VECTORS["relay_shard_codec"]),
            bytes.fromhex("0001") + bytes(range(128)),
        ],
    ),
]

SAMPLES = [sample for decoder in DECODERS for sample in decoder.samples]


@st.composite
def nearly_valid(draw):
    """A valid encoding of anything in which up to five places were overwritten, inserted into, cut or doubled."""
    data = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 8)))
        other = draw(st.sampled_from(SAMPLES))
        piece = draw(
            st.binary(max_size=4)
            | st.just(bytes(data[start:end]) * 2)
            | st.integers(0, len(other)).map(lambda cut: other[cut : cut + 16])  # noqa: B023 - drawn at once
        )
        data[start:end] = piece
    return bytes(data)


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_the_samples_of_a_decoder_are_valid(decoder):
    assert decoder.samples
    for sample in decoder.samples:
        decoder.decode(sample)


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@given(data=st.binary() | nearly_valid())
def test_any_bytes_give_a_value_or_a_decode_error(decoder, data):
    try:
        value = decoder.decode(data)
    except DecodeError as error:
        described = str(error)
    else:
        described = repr(value)  # reads every field, so that nothing waits to fail until it is looked at
    assert described


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_every_beginning_of_a_sample_gives_a_value_or_a_decode_error(decoder):
    outcomes = set()
    for sample in decoder.samples:
        for end in range(len(sample)):
            try:
                outcomes.add(type(decoder.decode(sample[:end])))
            except DecodeError:
                outcomes.add(DecodeError)
    assert outcomes

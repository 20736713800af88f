"""Every decoder of `fairway.wire` gets the same bytes; what is valid for one is nearly valid for the others.

Promises: a decoder returns a value or raises `DecodeError`; the value has an encoding, unless a rule for senders
forbids one; and that encoding decodes to an equal value.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from msgspec import structs

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire import file_message, lightpush, metadata, relay_shards, store, waku_message
from fairway.wire import filter as waku_filter
from fairway.wire.bloom import BloomParameters, chance_of_false_hit, holds
from fairway.wire.sds import NIM_SDS, WAKU_SDS, SdsCodec, SdsMessage
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, SegmentFormat
from fairway.wire.topics import ContentTopic, StaticShard, shard_of

EXPECTED_BLOOM: Final = BloomParameters.of(64, 0.01)
_PUBSUB_TOPIC: Final = "/waku/2/rs/1/3"


class BrokenPromiseError(AssertionError):
    """What was found is a fault of fairway."""


def _same(value: Any) -> Any:
    return value


def _always(_value: Any) -> bool:
    return True


def _nothing(_value: Any) -> object:
    """Stand where a value has no further use to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A decoder, its encoder, and where the two differ on purpose."""

    name: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    comparable: Callable[[Any], Any] = _same
    """Return the value without what its encoding does not tell."""
    may_be_sent: Callable[[Any], bool] = _always
    """Whether the rules for senders allow the value."""
    use: Callable[[Any], object] = _nothing
    """Do with the value what a receiver does; may raise `DecodeError`."""

    def check(self, data: bytes) -> None:
        """Raise whatever is not the `DecodeError` that bytes may deserve."""
        try:
            value = self.decode(data)
        except DecodeError:
            return
        # Reads every field, so that nothing waits to fail until it is looked at.
        repr(value)
        with suppress(DecodeError):
            self.use(value)
        if not self.may_be_sent(value):
            return
        again = self.decode(self.encode(value))
        if self.comparable(again) != self.comparable(value):
            raise BrokenPromiseError(f"{self.name}: {value!r} came back as {again!r}")


def _sds_decoder(name: str, codec: SdsCodec) -> Decoder:
    def look_up(message: SdsMessage) -> None:
        if message.bloom_filter is not None:
            check_bloom(codec, message.bloom_filter)

    return Decoder(
        name=name,
        decode=codec.decode,
        encode=codec.encode,
        # nim-sds always writes the filter, an absent one as an empty one.
        comparable=lambda m: structs.replace(m, bloom_filter=m.bloom_filter or b"") if codec is NIM_SDS else m,
        use=look_up,
    )


def check_bloom(codec: SdsCodec, field: bytes) -> None:
    """Read a bloom field and look an id up in it, as a receiver does."""
    bloom = codec.read_bloom(field, EXPECTED_BLOOM)
    if bloom is None:
        return
    holds(bloom.words, codec.bloom.positions("an id", bloom.parameters), codec.bloom.byte_flip)
    chance_of_false_hit(bloom.words, bloom.parameters)


def _segment_decoder(segment_format: SegmentFormat) -> Decoder:
    def decode(data: bytes) -> object:
        taken = segment_format.is_segment(data)
        segment = segment_format.decode(data)
        if not taken:
            raise BrokenPromiseError(f"{segment_format.name}: {segment!r} decodes but is not taken for a segment")
        return segment

    return Decoder(name=segment_format.name, decode=decode, encode=segment_format.encode)


def _hash_both_ways(message: waku_message.WakuMessage) -> None:
    for zero_timestamp in get_args(waku_message.ZeroTimestamp):
        waku_message.message_hash(_PUBSUB_TOPIC, message, zero_timestamp=zero_timestamp)
    if message.rate_limit_proof is not None:
        waku_message.decode_rate_limit_proof(message.rate_limit_proof)


def _bit_vector_decoder(bit_order: relay_shards.BitOrder) -> Decoder:
    return Decoder(
        name=f"relay shards, {bit_order}",
        decode=lambda data: relay_shards.decode_relay_shards(data, bit_order),
        encode=lambda value: relay_shards.relay_shards_entry(value, bit_order)[1],
    )


DECODERS: Final = (
    _sds_decoder("SDS", WAKU_SDS),
    _sds_decoder("SDS of nim-sds", NIM_SDS),
    _segment_decoder(WAKU_SEGMENTS),
    _segment_decoder(LIP_243),
    Decoder(
        name="WakuMessage",
        decode=waku_message.decode_waku_message,
        encode=waku_message.encode_waku_message,
        use=_hash_both_ways,
    ),
    Decoder(
        name="RLN proof",
        decode=waku_message.decode_rate_limit_proof,
        encode=waku_message.encode_rate_limit_proof,
    ),
    Decoder(
        name="light push request",
        decode=lightpush.decode_lightpush_request,
        encode=lightpush.encode_lightpush_request,
        use=lightpush.LightPushRequest.message,
    ),
    Decoder(
        name="light push response",
        decode=lightpush.decode_lightpush_response,
        encode=lightpush.encode_lightpush_response,
        use=lambda response: response.action,
    ),
    Decoder(
        name="light push request, version 2",
        decode=lightpush.decode_push_request_v2,
        encode=lightpush.encode_push_request_v2,
        use=lightpush.LightPushRequest.message,
    ),
    Decoder(
        name="light push response, version 2",
        decode=lightpush.decode_push_response_v2,
        encode=lightpush.encode_push_response_v2,
    ),
    Decoder(
        name="filter request",
        decode=waku_filter.decode_filter_subscribe_request,
        encode=waku_filter.encode_filter_subscribe_request,
        may_be_sent=lambda request: request.problem() is None,
    ),
    Decoder(
        name="filter response",
        decode=waku_filter.decode_filter_subscribe_response,
        encode=waku_filter.encode_filter_subscribe_response,
    ),
    Decoder(
        name="filter push",
        decode=waku_filter.decode_message_push,
        encode=waku_filter.encode_message_push,
        use=waku_filter.MessagePush.message,
    ),
    Decoder(
        name="store request",
        decode=store.decode_store_query_request,
        encode=lambda request: store.encode_store_query_request(request, checked=False),
        use=store.StoreQueryRequest.problem,
    ),
    Decoder(
        name="store response",
        decode=store.decode_store_query_response,
        encode=store.encode_store_query_response,
        comparable=lambda response: replace(response, malformed_entries=0),
    ),
    Decoder(
        name="store entry",
        decode=store.decode_stored_message,
        encode=store.encode_stored_message,
        use=store.StoredMessage.message,
    ),
    Decoder(
        name="metadata",
        decode=metadata.decode_metadata,
        encode=metadata.encode_metadata,
        may_be_sent=lambda value: value.cluster_id is not None,
    ),
    Decoder(
        name="file",
        decode=file_message.decode_file_message,
        encode=file_message.encode_file_message,
        may_be_sent=lambda message: message is not None,
    ),
    *map(_bit_vector_decoder, get_args(relay_shards.BitOrder)),
)
"""The table: a decoder is fuzzed when it has a row here."""


def check_decoders(data: bytes) -> None:
    """Give bytes to every decoder, and to what reads parts of messages."""
    for decoder in DECODERS:
        decoder.check(data)
    for codec in (WAKU_SDS, NIM_SDS):
        check_bloom(codec, data)
    # Lone surrogates stand for bytes that are no text; a protobuf string never has them, a caller's may.
    check_topics(data.decode(errors="surrogateescape"))


def check_topics(text: str) -> None:
    """Parse text as both kinds of topics."""
    for kind in (ContentTopic, StaticShard):
        try:
            topic = kind.parse(text)
        except ConfigurationError:
            continue
        if str(topic) != text:
            raise BrokenPromiseError(f"{text!r} came back as {str(topic)!r}")
        if isinstance(topic, ContentTopic):
            _shard(topic)


def _shard(topic: ContentTopic) -> None:
    try:
        shard_of(topic, 8)
    except ConfigurationError:
        return

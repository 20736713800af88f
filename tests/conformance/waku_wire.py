"""Known answers about WakuMessages, their hash, topics and shards, as js-waku gave them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.conformance.cases import Case, MalformedCaseError, same
from tests.conformance.report import Check

from fairway.units import NS_PER_MS
from fairway.wire.relay_shards import RelayShards, decode_relay_shards, relay_shards_entry
from fairway.wire.topics import autoshard, shard_of
from fairway.wire.waku_message import (
    RateLimitProof,
    WakuMessage,
    decode_waku_message,
    encode_rate_limit_proof,
    encode_waku_message,
    message_hash,
)

_ZERO_TIMESTAMP: Final = "js-waku leaves an absent or zero timestamp out of the hash; fairway does as store nodes do"
_SHARD_ORDER: Final = "js-waku lists shards in the order given; fairway lists each once, ascending"
_SHARD_KEY: Final = re.compile(r"shard_of_(\d+)")
_TOPIC_KEY: Final = re.compile(r"pubsubTopic_cluster(\d+)_(\d+)shards")


def read_message(case: Case) -> WakuMessage:
    """Return the message that a case spells out field by field."""
    proof = case.maybe_child("rateLimitProof")
    return WakuMessage(
        payload=case.octets("payload"),
        content_topic=case.text("contentTopic"),
        version=case.maybe_integer("version"),
        timestamp_ns=case.maybe_integer("timestamp"),
        meta=case.maybe_octets("meta"),
        rate_limit_proof=None if proof is None else encode_rate_limit_proof(_proof(proof)),
        ephemeral=case.maybe_flag("ephemeral"),
    )


def _proof(case: Case) -> RateLimitProof:
    return RateLimitProof(
        proof=case.octets("proof"),
        merkle_root=case.octets("merkleRoot"),
        epoch=case.octets("epoch"),
        share_x=case.octets("shareX"),
        share_y=case.octets("shareY"),
        nullifier=case.octets("nullifier"),
        rln_identifier=case.octets("rlnIdentifier"),
    )


def check_message_hash(case: Case) -> Iterator[Check]:
    """Check deterministic message hashes."""
    case.prose("same_in_message_hash_pkg")
    topic, message, recorded = case.text("pubsubTopic"), read_message(case.child("message")), case.octets("hash")
    check = same("hash", recorded, message_hash(topic, message, zero_timestamp="omit"))
    departs = check.ok and message_hash(topic, message) != recorded
    yield Check(check.name, ok=True, differs_on_purpose=_ZERO_TIMESTAMP) if departs else check


def check_message(case: Case) -> Iterator[Check]:
    """Check encoded messages, both ways."""
    message, encoded = read_message(case.child("message")), case.octets("encoded_hex")
    yield same("encoded", encoded, encode_waku_message(message))
    yield same("decoded", message, decode_waku_message(encoded))


def check_encoder(case: Case) -> Iterator[Check]:
    """Check what an encoder makes of a payload: topic, bytes and hash."""
    network, given = case.child("networkConfig"), case.child("message")
    content_topic, topic = case.text("contentTopic"), case.text("pubsubTopic")
    message = WakuMessage(
        payload=given.octets("payload"),
        content_topic=content_topic,
        # What js-waku's encoder writes of its own accord.
        version=0,
        timestamp_ns=given.integer("timestamp_ms") * NS_PER_MS,
        meta=given.maybe_octets("meta"),
        ephemeral=given.maybe_flag("ephemeral") or False,
    )
    own_topic = autoshard(content_topic, network.integer("clusterId"), network.integer("numShardsInCluster"))
    yield same("pubsubTopic", topic, own_topic)
    wire = case.octets("wire_hex")
    yield same("wire", wire, encode_waku_message(message))
    yield same("wire decoded", message, decode_waku_message(wire))
    yield same("hash", case.octets("hash"), message_hash(topic, message))


def check_sharding(case: Case) -> Iterator[Check]:
    """Check autosharding; the names of fields say for how many shards, and in which cluster."""
    content_topic = case.text("contentTopic")
    claims = 0
    for key in case:
        if match := _SHARD_KEY.fullmatch(key):
            yield same(f"{content_topic} {key}", case.integer(key), shard_of(content_topic, int(match[1])))
            claims += 1
        elif match := _TOPIC_KEY.fullmatch(key):
            own = autoshard(content_topic, int(match[1]), int(match[2]))
            yield same(f"{content_topic} {key}", case.text(key), own)
            claims += 1
    if not claims:
        raise MalformedCaseError("no field tells a shard")


def check_relay_shards(case: Case) -> Iterator[Check]:
    """Check the shards of a node record, both ways."""
    listed, encoded = case.integers("shards"), case.octets("hex")
    shards = RelayShards(cluster_id=case.integer("clusterId"), shards=frozenset(listed))
    _key, own = relay_shards_entry(shards, bit_order="js-waku")
    if listed == sorted(shards.shards):
        yield same("encoded", encoded, own)
    else:
        yield Check("encoded", ok=len(own) == len(encoded), differs_on_purpose=_SHARD_ORDER)
    yield same("decoded", shards, decode_relay_shards(encoded, bit_order="js-waku"))

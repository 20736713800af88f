"""What an archive tells of acknowledgements when its participants attach bloom filters only as news, against receipts.

Simulated participants write the archive. Their own events tell who acknowledged what; the pipeline is given the stored
messages alone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.compute as pc

from fairway.options import BloomPolicy, SdsConfig
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.stages.bloom_evidence import evidence_mapper, filter_mapper
from fairway.simulation import Plan, World

MINUTE_MS = 60_000
ORDER = ("channel_id", "lamport", "message_id", "timestamp_ns", "message_hash")


@pytest.fixture(scope="module", params=[0, pytest.param(0.3, marks=pytest.mark.full)], ids="loss={}".format)
def world(seed, request):
    plan = Plan(participants=4, duration_ms=5 * MINUTE_MS, seed=seed, loss=request.param, messages_per_hour=240)
    options = plan.options()
    segmentation = replace(options.segmentation, segment_size_bytes=320, parity_rate=0.0)
    options = replace(options, segmentation=segmentation, sds=replace(options.sds, bloom_policy=BloomPolicy.NEWS))
    world = World(plan, options=options, channel_id="news")
    world.run()
    return world


def filters_of(run):
    """Return what the stage reads of the archive: filters, citations, and who vouches, in the order of SDS."""
    rows = [
        {
            "message_hash": publication.message_hash,
            "pubsub_topic": publication.pubsub_topic,
            "content_topic": publication.message.content_topic,
            "payload": publication.message.payload,
            "timestamp_ns": publication.message.timestamp_ns,
            "meta": publication.message.meta,
        }
        for publication in run.stored
    ]
    heard = pa.Table.from_batches(filter_mapper()(iter(pa.Table.from_pylist(rows, ARROW_SCHEMA).to_batches())))
    return heard.take(pc.sort_indices(heard, [(name, "ascending", "at_start") for name in ORDER]))


def acknowledged(heard):
    """Return who has which message, as pairs, for certain."""
    told = pa.Table.from_batches(evidence_mapper(SdsConfig())(iter(heard.to_batches()))).to_pylist()
    by_evidence = {(row["message_id"], row["acknowledged_by"]) for row in told if row["how"] == "descendant"}
    by_citation = {
        (message_id, row["sender_id"])
        for row in heard.to_pylist()
        for message_id in row["cited"]
        if row["sender_id"] is not None
    }
    return by_evidence | by_citation, by_citation


def test_what_the_archive_tells_is_true_and_close_to_what_senders_saw(world):
    heard = filters_of(world)
    assert heard["vouches"].to_pylist().count(True) > 0.5 * heard.num_rows
    found, by_citation = acknowledged(heard)
    people = {**world.departed, **world.participants}
    wrong = [(message_id, who) for message_id, who in found if not has(people[who], message_id)]
    assert not wrong

    sends = {send.number: send for send in world.history.sends}
    claimed = {(send.number, who) for send in sends.values() for end in send.ends for who in end.delivered_to}
    assert len(claimed) > 20

    def told(pairs):
        return {(number, who) for number, who in claimed if all((one, who) in pairs for one in data_of(sends[number]))}

    assert told(by_citation) < told(found), "a proper subset"
    assert len(told(found)) >= 0.95 * len(claimed)


def has(participant, message_id):
    """Return whether the store of a participant has a message, delivered or not."""
    return not participant.kept.rows.keys().isdisjoint({("history", message_id), ("parked", message_id)})


def data_of(send):
    """Return the ids of the SDS messages that carried the data of a send, without parity."""
    return [message_id for message_id, is_parity in send.sds_ids.items() if not is_parity]

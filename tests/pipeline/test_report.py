"""The whole pipeline over a small archive, in a real Spark."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

from fairway.errors import ConfigurationError, DecodeError
from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.report import report_of
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.report.causes import LossCause
from fairway.pipeline.run import run
from fairway.pipeline.run.reading import RunTables
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import WAKU_SDS, SdsMessage
from fairway.wire.segment import WAKU_SEGMENTS, Segment

pytestmark = pytest.mark.spark

SEGMENTS = SegmentationConfig(segment_size_bytes=128)


def later(waku, milliseconds):
    """Return what a retry sends: the same SDS message in a newly stamped WakuMessage."""
    return replace(waku, timestamp_ns=waku.timestamp_ns + milliseconds * 1_000_000)


@pytest.fixture
def made(log, write_archive):
    """Make an archive with everything in it that goes wrong, and remember what was done."""
    team, other = log("team"), log("other")
    for number in range(4):
        for sender in ("alice", "bob", "carol"):
            team.message(sender, b"%s says %d" % (sender.encode(), number))
    lost = team.sent[4]
    carols_sync = team.message("carol", None)

    picture = random.Random(2).randbytes(1_000)
    pieces = team.file("alice", picture, SEGMENTS)
    lost_piece = pieces[3]
    assert [len(pieces), WAKU_SEGMENTS.decode(pieces[-1].content).is_parity] == [8 + 1, True]
    thanks = team.message("bob", b"thanks for the picture")

    broken = team.file("bob", random.Random(3).randbytes(300), SEGMENTS)
    team.message("carol", b"it did not arrive")

    for number in range(3):
        other.message("dave", b"monologue %d" % number)

    too_many = WAKU_SEGMENTS.encode(
        Segment(
            payload_hash=bytes(32),
            index=0,
            data_count=300,
            parity_count=0,
            is_parity=False,
            payload=b"x",
            payload_length=None,
        )
    )
    dropped = {lost[0].message_id, lost_piece.message_id, broken[1].message_id}
    messages = [waku for message, waku in team.sent + other.sent if message.message_id not in dropped]
    messages += [later(team.sent[0][1], 30_000), later(team.sent[0][1], 60_000), later(team.sent[5][1], 30_000)]
    messages += [
        team.wrapped(b"\xff\xfe\xfd garbage"),
        team.wrapped(b""),
        team.wrapped(
            WAKU_SDS.encode(
                SdsMessage(message_id="", sender_id="eve", channel_id="", lamport_timestamp=1, content=b"x")
            )
        ),
        team.wrapped(
            WAKU_SDS.encode(
                SdsMessage(message_id="bad", sender_id="eve", channel_id="team", lamport_timestamp=1, content=too_many)
            )
        ),
    ]
    return SimpleNamespace(
        path=write_archive(messages),
        messages=len(messages),
        team=team,
        lost=lost[0],
        picture=picture,
        pieces=pieces,
        lost_piece=lost_piece,
        broken=broken,
        thanks=thanks,
        sync=carols_sync,
    )


@pytest.mark.full
def test_the_report_tells_what_was_said_and_what_was_lost(spark, made, tmp_path):
    run([f"a={made.path}"], tmp_path / "run", profile=Profile.WAKU)  # in the session that is active
    report = report_of(RunTables(tmp_path / "run"))

    assert report.archive == "a"
    assert report.messages == made.messages
    assert report.first_ns == made.team.sent[0][1].timestamp_ns

    team, other = report.channels  # the worst first
    assert (team.channel_id, team.senders, team.sync, team.repeats) == ("team", 3, 1, 3)
    # 12 said, 9 + 3 segments, two more, three of all these lost
    assert team.content == 12 + 9 + 3 + 2 - 3
    # 11 of those said, two remarks, and the picture
    assert (team.delivered, team.reassembled, team.recovered) == (11 + 2 + 1, 1, 1)
    assert (team.missing, team.incomplete) == (2, 1)
    assert (other.content, other.delivered, other.delivered_bytes) == (3, 3, 3 * len(b"monologue 0"))
    assert (other.missing, other.incomplete, other.recovered, other.repeats) == (0, 0, 0, 0)
    assert report.totals["delivered"] == 17

    told = report_json(RunTables(tmp_path / "run"))["tables"]
    (incomplete,) = told["incomplete"]["rows"]
    assert incomplete["segment_hash"] == WAKU_SEGMENTS.decode(made.broken[0].content).payload_hash.hex()
    assert (incomplete["sender_id"], incomplete["held"], incomplete["data_segments"]) == ("bob", 2, 3)

    # The lost piece of the picture is cited too, but Reed-Solomon made up for it.
    by_id = {message["message_id"]: message for message in told["lost"]["rows"]}
    assert by_id.keys() == {made.lost.message_id, made.broken[1].message_id}
    hint = next(entry.retrieval_hint for entry in made.team.history if entry.message_id == made.lost.message_id)
    ordered = RunTables(tmp_path / "run").all("sds_ordered", ["waits_for"])
    assert by_id[made.lost.message_id] == {
        "channel_id": "team",
        "message_id": made.lost.message_id,
        "sender_id": "bob",
        "cause": LossCause.NO_STORE.value,
        "meanwhile": "",
        "cited_by": 2,
        "holds_up": sum(row["waits_for"] == made.lost.message_id for row in ordered),
        "first_cited_ms": made.team.sent[5][1].timestamp_ns // 1_000_000,
        "last_cited_ms": made.team.sent[6][1].timestamp_ns // 1_000_000,
        "message_hash": hint.hex(),
    }
    assert by_id[made.broken[1].message_id]["cited_by"] == 2

    # Nobody else is in the other channel; in the team nearly all is cited one second later.
    assert (other.acknowledged, other.latency_p50_ms, other.latency_p95_ms) == (0, None, None)
    assert team.latency_p50_ms == 1_000
    senders = {(sender["channel_id"], sender["sender_id"]): sender for sender in told["senders"]["rows"]}
    dave = senders["other", "dave"]
    assert (dave["known"], dave["readable"], dave["content"], dave["acknowledged"], dave["held_up"]) == (3, 3, 3, 0, 0)

    assert report.quarantined == {
        "not-sds": 2,
        "no-id": 1,
        "bad-segment": 1,
    }


@pytest.mark.full
def test_an_empty_archive_has_an_empty_report(spark, tmp_path):
    NwakuArchive(tmp_path / "empty.db").close()
    run([f"sqlite:{tmp_path / 'empty.db'}"], tmp_path / "run", spark=spark)
    report = report_of(RunTables(tmp_path / "run"))
    assert (report.messages, report.payload_bytes, report.first_ns, report.channels) == (0, 0, None, ())
    assert [told.what for told in report.to_do] == ["The sources have no messages at all."]


def test_what_is_no_archive_is_refused(spark, tmp_path):
    (tmp_path / "text.db").write_text("not an archive " * 100)
    for name, error, why in (("none.db", ConfigurationError, "cannot be read"), ("text.db", DecodeError, "an archive")):
        with pytest.raises(error, match=why):
            run([f"sqlite:{tmp_path / name}"], tmp_path / "run", spark=spark)

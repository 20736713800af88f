"""What claims a channel on another content topic than the channel's goes to the quarantine."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from math import inf

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fairway.archives.restore import restore
from fairway.cli import app
from fairway.errors import ConfigurationError
from fairway.options import Profile
from fairway.pipeline.channel_topics import channel_topics_of, topic_of
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.run import RunOptions, RunTables, run
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.run.topics import CLAIMS, CountedTopics, several_topics, sum_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.streaming import StreamOptions, stream
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage, message_hash
from grown_runs import assert_same, write
from made_messages import message

TEAM = "/app/1/team/proto"
OTHER = "/app/1/other/proto"
SHARD = "/waku/2/rs/1/0"

TOPICS = st.sampled_from([TEAM, OTHER, "", None])
CHANNELS = st.sampled_from(["team", "ops", "other", "ä"])


@given(
    st.lists(st.tuples(CHANNELS, TOPICS, st.sampled_from(Profile)), min_size=1, max_size=40),
    st.dictionaries(CHANNELS, st.sampled_from([TEAM, OTHER])),
    st.sampled_from([1, 1_000]),
)
def test_a_message_is_refused_where_its_channel_is_on_another_topic(rows, topics, few_rows):
    batch = pa.RecordBatch.from_pydict(
        {
            "message_hash": pa.array([b"%032d" % number for number in range(len(rows))], pa.binary()),
            "timestamp_ns": pa.array(range(len(rows)), pa.int64()),
            "content_topic": pa.array([topic for _, topic, _ in rows], pa.string()),
            "payload": pa.array(
                [profile.codec.encode(message(channel_id=name, content=None)) for name, _, profile in rows], pa.binary()
            ),
            "meta": pa.array([profile.marker for _, _, profile in rows], pa.binary()),
        }
    )
    decoder = BatchDecoder(None, None, None, channel_topics=topics, few_rows=few_rows)
    for (name, topic, _), row in zip(rows, decoder.batch(batch).to_pylist(), strict=True):
        if topics.get(name, topic) == topic:
            assert (row["status"], row["channel_id"], row["error"]) == ("ok", name, None)
        else:
            assert (row["status"], row["channel_id"], row["message_id"]) == ("wrong-topic", None, None)
            assert row["error"] == f"channel {name!r} is on {topics[name]}, and this message on {topic}"


def test_topics_are_given_as_pairs():
    given_texts = [f"team={TEAM}", f"a=b=={OTHER}", f"team={TEAM}"]
    assert channel_topics_of(given_texts) == {"team": TEAM, "a=b=": OTHER}
    assert channel_topics_of(None) == {}


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["team"], "--channel-topic 'team' is not CHANNEL=TOPIC; give a channel id and its content topic, such as"),
        ([f"={TEAM}"], "is not CHANNEL=TOPIC"),
        (["team=app/1/team/proto"], "is not CHANNEL=TOPIC"),
        (
            ["team=/app/team"],
            "channel_topics, channel 'team': '/app/team' is not a content topic; expected /",
        ),
        ([f"team={TEAM}", f"team={OTHER}"], f"gives channel 'team' the topics {TEAM} and {OTHER}; a channel is on one"),
    ],
)
def test_what_is_no_topic_of_a_channel_is_refused(texts, told):
    with pytest.raises(ConfigurationError, match=told):
        channel_topics_of(texts)


def test_a_channel_has_the_topic_that_either_option_says():
    topics = {"team": TEAM}
    assert topic_of("team", None, topics) == topic_of("team", TEAM, topics) == topic_of("team", TEAM, {}) == TEAM
    assert topic_of("ops", OTHER, topics) == OTHER
    assert topic_of("ops", None, topics) is None
    with pytest.raises(ConfigurationError, match=f"--topic says {OTHER} .* --channel-topic says {TEAM}: a channel is"):
        topic_of("team", OTHER, topics)


def test_options_refuse_topics_that_cannot_be():
    with pytest.raises(ConfigurationError, match="for a channel without a name: give its id"):
        RunOptions(channel_topics={"": TEAM})
    with pytest.raises(ConfigurationError, match="'team' is not a content topic"):
        RunOptions(channel_topics={"ops": "team"})


def test_commands_refuse_what_is_no_pair(tmp_path):
    for command in ("run", "stream"):
        arguments = ["pipeline", command, "--source", "one.db", "--out", str(tmp_path / "out"), "--channel-topic", "x"]
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, ConfigurationError), result.output
        assert "is not CHANNEL=TOPIC" in str(result.exception)


def sent(log):
    """Return messages of a channel on its topic, and others that claim the channel on another one."""
    channel, intruder = log("team"), log("team")
    for number in range(6):
        channel.message("alice", f"{number}".encode())
    for number in range(3):
        intruder.message("mallory", f"lie {number}".encode())
    own, lies = (
        [replace(waku, content_topic=topic) for _, waku in one.sent]
        for one, topic in ((channel, TEAM), (intruder, OTHER))
    )
    return own, lies


def archive(path, messages):
    with NwakuArchive(path) as written:
        for one in messages:
            written.append(SHARD, one)
    return f"a=sqlite:{path}"


def counted(tables):
    return {row["channel_id"]: row["content"] for row in tables.all("channel_stats")}


@pytest.mark.full
@pytest.mark.spark
def test_runs_and_streams_leave_out_what_is_on_another_topic(log, spark, tmp_path, monkeypatch):
    monkeypatch.setitem(grow.__kwdefaults__, "most_grown", inf)
    own, lies = sent(log)
    topics = {"team": TEAM}
    source, growing = archive(tmp_path / "one.db", own + lies), tmp_path / "growing.db"
    told = run([source], tmp_path / "run", channel_topics=topics, spark=spark)
    assert told.balance.adds_up, str(told.balance)
    tables = RunTables(tmp_path / "run")
    assert counted(tables) == {"team": len(own)}
    assert sorted(row["sender_id"] for row in tables.all("sds_ordered")) == ["alice"] * len(own)
    quarantined = tables.all("quarantine")
    assert [(row["status"], row["content_topic"]) for row in quarantined] == [("wrong-topic", OTHER)] * len(lies)
    assert "See who sent them on another topic" in str(report_json(tables, 20))

    run([archive(growing, own[:3])], tmp_path / "grown", channel_topics=topics, spark=spark)
    archive(growing, own[3:] + lies)
    grown = run([f"a=sqlite:{growing}"], tmp_path / "grown", channel_topics=topics, spark=spark)
    assert (grown.mode, grown.balance) == ("grown", told.balance)
    assert_same(tmp_path / "grown", tmp_path / "run")

    restored = restore(tables, tmp_path / "bob.db", channel_id="team", sender_id="bob")
    assert (restored.messages, restored.delivered, restored.missing) == (len(own), len(own), 0)

    other = run([source], tmp_path / "run", channel_topics={"team": OTHER}, spark=spark)
    assert other.because == "the tables in the folder had other options (channel_topics)"
    assert counted(RunTables(tmp_path / "run")) == {"team": len(lies)}


@pytest.mark.full
@pytest.mark.spark
def test_a_stream_delivers_what_is_on_the_topic_of_its_channel(log, spark, tmp_path):
    own, lies = sent(log)
    source = archive(tmp_path / "one.db", own + lies)
    options = StreamOptions(tables=RunOptions(channel_topics={"team": TEAM}), once=True, settle_ms=0)
    followed = stream([source], tmp_path / "live", options=options, spark=spark)
    assert followed.delivered == len(own)
    assert counted(RunTables(tmp_path / "live")) == {"team": len(own)}
    with pytest.raises(ConfigurationError, match="holds another stream"):
        stream([source], tmp_path / "live", options=StreamOptions(once=True, settle_ms=0), spark=spark)


@given(st.lists(st.tuples(CHANNELS, TOPICS, st.integers(1, 12_000)), max_size=12), st.integers(1, 4))
def test_a_channel_is_on_the_topic_of_99_of_100_messages(claims, parts):
    counts = defaultdict(Counter)
    for channel, topic, messages in claims:
        counts[channel][topic] += messages
    expected = {
        channel: topic
        for channel, topics in counts.items()
        for topic, messages in topics.items()
        if topic is not None and len(topics) > 1 and topics.total() >= 100 and messages >= 0.99 * topics.total()
    }
    tables = [
        pa.Table.from_pylist([dict(zip(CLAIMS.names, row, strict=True)) for row in claims[place::parts]], CLAIMS)
        for place in range(parts)
    ]
    found = several_topics(sum_of(sum_of([table]) for table in tables))
    assert found.decided() == expected
    assert found.channels.keys() == {channel for channel, topics in counts.items() if len(topics) > 1}
    assert CountedTopics.from_json([json.loads(json.dumps(found.as_json()))]) == found


def claim(channel, content, topic, second):
    """Return the row of a message that claims a channel on a topic."""
    sent = message(
        message_id=f"{content}",
        sender_id="alice",
        channel_id=channel,
        lamport_timestamp=second,
        causal_history=(),
        repair_request=(),
        bloom_filter=None,
        content=content.encode(),
    )
    payload, timestamp_ns = Profile.WAKU.codec.encode(sent), second * 1_000_000_000
    waku_message = WakuMessage(payload=payload, content_topic=topic, timestamp_ns=timestamp_ns)
    return {
        "message_hash": message_hash(SHARD, waku_message),
        "pubsub_topic": SHARD,
        "content_topic": topic,
        "payload": payload,
        "version": 0,
        "timestamp_ns": timestamp_ns,
        "meta": None,
        "source": "a",
    }


def rows_of(*counts):
    """Return rows of so many messages of a channel on a topic each."""
    return [
        claim(name, f"{name} {topic} {number}", topic, 1 + number + 1_000 * place)
        for place, (name, topic, count) in enumerate(counts)
        for number in range(count)
    ]


@pytest.mark.full
@pytest.mark.spark
def test_by_default_a_hundredth_is_on_the_wrong_topic(spark, tmp_path, monkeypatch):
    monkeypatch.setitem(grow.__kwdefaults__, "most_grown", inf)
    counts = (
        ("team", TEAM, 198),
        ("team", OTHER, 2),
        ("ops", TEAM, 98),
        ("ops", OTHER, 2),
        ("few", TEAM, 98),
        ("few", OTHER, 1),
        ("other", OTHER, 120),
    )
    source = tmp_path / "rows"

    def at(name, rows):
        write(source, f"{name}.parquet", pa.Table.from_pylist(rows, ARROW_SCHEMA))
        summary = run([f"parquet:{source}"], tmp_path / "run", spark=spark)
        assert summary.balance.adds_up, str(summary.balance)
        return summary, RunTables(tmp_path / "run")

    _, tables = at("first", rows_of(*counts))
    assert counted(tables) == {"team": 198, "ops": 100, "few": 99, "other": 120}
    told = f"channel 'team' is on {TEAM}, and this message on {OTHER}"
    assert [(row["status"], row["error"]) for row in tables.all("quarantine")] == [("wrong-topic", told)] * 2
    # What came since is judged by what is known, as long as that would be decided again.
    second, tables = at("second", [claim("team", "more", TEAM, 5_000), claim("ops", "more of ops", OTHER, 5_000)])
    assert (second.mode, counted(tables)["team"], counted(tables)["ops"]) == ("grown", 199, 101)
    third, tables = at("third", [claim("few", "hundredth", TEAM, 5_001)])
    assert third.because == "a channel may be on another content topic than before"
    assert counted(tables)["few"] == 99
    fourth, tables = at("fourth", [claim("other", "lie", TEAM, 5_002)])
    assert fourth.because == "a channel got its first message on another content topic"
    assert counted(tables)["other"] == 120
    more = [claim("team", f"more {number}", TEAM, 5_003 + number) for number in range(101)]
    fifth, tables = at("fifth", [*more, claim("team", "another lie", OTHER, 6_000)])
    assert (fifth.mode, counted(tables)["team"]) == ("grown", 300)
    assert Counter(row["status"] for row in tables.all("quarantine")) == {"wrong-topic": 5}
    run([f"parquet:{source}"], tmp_path / "whole", spark=spark)
    assert_same(tmp_path / "run", tmp_path / "whole")
    sixth, tables = at("sixth", [claim("team", "one too many", OTHER, 6_001), claim("team", "and one", OTHER, 6_002)])
    assert sixth.because == "a channel may be on another content topic than before"
    assert counted(tables)["team"] == 305
    restored = restore(tables, tmp_path / "bob.db", channel_id="other", sender_id="bob")
    assert restored.delivered == 120

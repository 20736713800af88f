"""A batch from files to a live channel, with the sender killed on the way; and what a batch refuses."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from patience import PATIENCE_S, until

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from typer.testing import CliRunner

import fairway
from fairway.cli import app
from fairway.errors import ConfigurationError
from fairway.nodes.node import RoutedMessage
from fairway.options import ReliableChannelOptions
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing import SendOptions, SendSummary, send
from fairway.pipeline.outgoing.tables import OUTGOING_TABLES
from fairway.pipeline.run.folder import RunFolder
from fairway.pipeline.run.reading import RunTables
from fairway.protocol.encryption import AesGcm
from fairway.service import ServiceNode, ServiceOptions
from fairway.wire.topics import autoshard
from nodes_in_threads import NodeInThread

pytestmark = pytest.mark.spark

TOPIC = "/fairway/1/team/proto"
KEY = "5c" * 32
OPTIONS = SendOptions(channel_id="team", sender_id="alice", rate_limit=6, epoch_ms=400)
WORDS = ("--channel", "team", "--sender", "alice", "--rate-limit", "6", "--epoch-ms", "400")


def rows_of(folder, name) -> list[dict]:
    return ds.dataset(str(folder / "tables" / name), format="parquet").to_table().to_pylist()


def take(into: list, item) -> None:
    into.append(item)


async def sender_process(*words: str) -> asyncio.subprocess.Process:
    start = (sys.executable, "-c", "from fairway.cli import main; main()", "pipeline", "send", *words)
    return await asyncio.create_subprocess_exec(*start, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)


@pytest.mark.full
def test_a_sender_that_is_killed_again_and_again_sends_everything_once_and_a_live_channel_gets_all_in_order(
    spark, tmp_path
):
    folder, out, keys_file = tmp_path / "files", tmp_path / "out", tmp_path / "keys.json"
    folder.mkdir()
    payloads = [b"%d" % number * (1 + number) for number in range(14)] + [bytes(range(256)) * 1_200]
    for number, payload in enumerate(payloads):
        (folder / f"{number:03}.bin").write_bytes(payload)
    keys_file.write_text(json.dumps({"team": {"cipher": "aes-256-gcm", "key": KEY}}))
    planned: list[SendSummary] = []
    summary = send(
        folder,
        out,
        node=None,
        options=OPTIONS,
        keys=ChannelKeys.from_file(keys_file),
        spark=spark,
        planned=planned.append,
    )
    assert planned == [summary]
    assert (summary.payloads, summary.refused, summary.transmissions, summary.left) == (15, 0, 17, 17)
    assert summary.epochs >= 3
    scheduled = sorted(rows_of(out, "scheduled"), key=lambda row: row["place"])
    words = ("--payloads", str(folder), "--out", str(out), "--keys", str(keys_file), *WORDS)

    async def work() -> tuple[list[bytes], list[RoutedMessage], str]:
        got: list[bytes] = []
        seen: list[RoutedMessage] = []

        async def listen(channel) -> None:
            async for message in channel:
                take(got, message.payload)

        async def watch(messages) -> None:
            async for message in messages:
                take(seen, message)

        async with (
            await ServiceNode.start(ServiceOptions(ws_port=None)) as server,
            fairway.connect(str(server.addresses[0])) as node,
            fairway.connect(str(server.addresses[0])) as watcher,
        ):
            channel = await fairway.create_reliable_channel(
                node,
                channel_id="team",
                sender_id="bob",
                content_topic=TOPIC,
                encryption=AesGcm(bytes.fromhex(KEY)),
                options=replace(ReliableChannelOptions(), sync_min_interval_ms=0),
            )
            async with channel:
                watched = await watcher.subscribe(autoshard(TOPIC, 1, 8), [TOPIC])
                tasks = [asyncio.create_task(listen(channel)), asyncio.create_task(watch(watched))]
                for enough in (2, 9):
                    process = await sender_process(*words, "--node", str(server.addresses[0]))
                    await until(lambda enough=enough: len(seen) >= enough, f"{enough} messages")
                    process.kill()
                    await process.communicate()
                process = await sender_process(*words, "--node", str(server.addresses[0]), "--json")
                out_bytes, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
                assert process.returncode == 0, err.decode()
                await until(lambda: len(got) >= len(payloads), "the payloads")
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return got, seen, out_bytes.decode()

    got, seen, told = asyncio.run(work())
    assert got == payloads
    # Every SDS message travelled once, whatever its timestamp, and they are those of the schedule.
    assert [message.message.payload for message in seen] == [row["payload"] for row in scheduled]
    result = json.loads(told)
    assert result["complete"] is True
    assert result["statuses"] == {"sent": 17}
    receipts = rows_of(out, "receipts")
    assert {(row["sent_hash"] or row["message_hash"]) for row in receipts} == {each.message_hash for each in seen}

    changed = replace(OPTIONS, rate_limit=7)
    with pytest.raises(ConfigurationError, match=r"another batch were sent .*\(rate_limit, keys differ\)"):
        send(folder, out, node=None, options=changed, spark=spark)


@pytest.mark.full
def test_every_table_is_there_with_its_columns(spark, tmp_path):
    lines = [
        {"payload": "one", "seq": 1},
        {"payload": "two", "seq": 2, "sender_id": "carol"},
        {"payload_base64": "AAH/", "seq": 3, "content_topic": TOPIC, "ephemeral": True},
        {"payload": "", "seq": 4},
        {"paylaod": "x"},
    ]
    path = tmp_path / "batch.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{\n")
    words = ("--payloads", str(path), "--channel", "team", "--sender", "alice", "--start-ms", "1760000000000")
    out = tmp_path / "out"

    result = CliRunner().invoke(app, ["pipeline", "send", *words, "--out", str(out), "--dry-run", "--json"])
    assert result.exit_code == 1, result.output
    summary = json.loads(result.stdout)
    assert (summary["payloads"], summary["refused"], summary["transmissions"]) == (6, 3, 3)
    for table in OUTGOING_TABLES:
        place = out / "tables" / table.name
        assert tuple(pq.read_schema(next(place.glob("*.parquet"))).names) == table.columns
    refused = {row["origin"]: (row["reason"], row["detail"]) for row in rows_of(out, "refused")}
    assert refused["line 4"][0] == "empty"
    assert refused["line 5"] == ("unreadable", refused["line 5"][1])
    assert "'paylaod' is not known" in refused["line 5"][1]
    assert "not JSON" in refused["line 6"][1]
    assert {row["status"] for row in rows_of(out, "receipts")} == {"waiting"}


@pytest.mark.full
def test_a_node_of_another_network_refuses_at_once_and_the_right_network_may_follow_in_the_same_folder(spark, tmp_path):
    path, out = tmp_path / "batch.jsonl", tmp_path / "out"
    path.write_text("".join(f'{{"payload": "{number}"}}\n' for number in range(3)))
    with NodeInThread(cluster_id=16, shards=(0,), shard_count=1) as served:
        words = [
            "pipeline",
            "send",
            "--payloads",
            str(path),
            "--channel",
            "team",
            "--sender",
            "alice",
            "--out",
            str(out),
        ]
        words += ["--node", str(served.node.addresses[0])]
        wrong = CliRunner().invoke(app, words, catch_exceptions=False)
        assert wrong.exit_code == 1
        assert "3 messages not taken: " in wrong.output
        assert "421 this node does not serve '/waku/2/rs/1/3'; it serves /waku/2/rs/16/0" in wrong.output
        assert "--cluster with --shards or --shard, gives the network of the node" in wrong.output
        receipts = RunTables(out).pandas("receipts")
        assert set(receipts["status"]) == {"refused"}
        assert set(receipts["attempts"]) == {1}
        right = CliRunner().invoke(app, [*words, "--cluster", "16", "--shard", "0"], catch_exceptions=False)
        assert right.exit_code == 0, right.output
    assert set(RunTables(out).pandas("receipts")["status"]) == {"sent"}


@pytest.mark.full
def test_a_batch_of_which_nothing_can_be_sent_is_done_and_says_so(spark, tmp_path):
    (tmp_path / "batch.jsonl").write_text('{"payload": ""}')
    summary = send(tmp_path / "batch.jsonl", tmp_path / "out", node="local:nothing", options=OPTIONS, spark=spark)
    assert (summary.refused, summary.transmissions, summary.is_settled, summary.is_complete) == (1, 0, True, False)
    assert rows_of(tmp_path / "out", "receipts") == []


@pytest.mark.full
def test_folders_and_stores_that_are_of_something_else_are_refused(spark, tmp_path):
    pq.write_table(pa.table({"payload": [b"one"], "channel_id": ["other"]}), tmp_path / "batch.parquet")
    with pytest.raises(ConfigurationError, match="one participant in one channel"):
        send(
            tmp_path / "batch.parquet",
            tmp_path / "out",
            node=None,
            options=replace(OPTIONS, after=str(tmp_path / "alice.db")),
            spark=spark,
        )
    RunFolder.open_for(tmp_path / "run", [], {"format": "parquet"}, None).close()
    with pytest.raises(ConfigurationError, match="holds the tables of 'fairway pipeline run'"):
        send(tmp_path / "batch.parquet", tmp_path / "run", node=None, options=OPTIONS, spark=spark)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "--node is missing"),
        (("--network", "twn", "--shards", "2"), "says what --cluster and --shards are"),
    ],
)
def test_words_that_cannot_be_are_told(tmp_path, words, why):
    path = tmp_path / "batch.jsonl"
    path.write_text('{"payload": "one"}')
    result = CliRunner().invoke(
        app, ["pipeline", "send", "--payloads", str(path), "--out", str(tmp_path / "o"), *words]
    )
    assert isinstance(result.exception, ConfigurationError)
    assert why in str(result.exception)


def test_payloads_and_folders_that_cannot_be_are_named(tmp_path):
    def refused(payloads, why):
        with pytest.raises(ConfigurationError, match=why):
            send(payloads, tmp_path / "out", node=None, options=OPTIONS)

    refused(tmp_path / "missing", "no such file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "has no files")
    (tmp_path / "batch.txt").write_text("x")
    refused(tmp_path / "batch.txt", "neither .parquet nor .jsonl")
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "no column payload")
    pq.write_table(pa.table({"payload": [b"x"], "seq": ["first"]}), tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet", "another type than")
    (tmp_path / "c.parquet").write_text("x")
    refused(tmp_path / "c.parquet", "cannot be read as Parquet")


def test_options_that_cannot_be_are_refused():
    for wrong, why in (
        ({"rate_limit": 0}, "rate_limit"),
        ({"epoch_ms": 0}, "epoch_ms"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            replace(OPTIONS, **wrong)

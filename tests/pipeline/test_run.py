"""A whole run over two stores with both profiles and sealed channels, in a real Spark."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fairway.archives.export import export
from fairway.errors import ConfigurationError
from fairway.options import Profile, SegmentationConfig
from fairway.pipeline import stages
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.report.findings import report_of
from fairway.pipeline.run import run
from fairway.pipeline.run.attempt import step_names
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.progress import RunProgress
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.schema import types_of
from fairway.pipeline.sources.open_source import open_source
from fairway.pipeline.tables import TABLES, table_named
from fairway.protocol.encryption import AesGcm
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import NIM_SDS
from fairway.wire.segment import LIP_243

pytestmark = pytest.mark.spark

SHARD = "/waku/2/rs/1/0"
KEY = bytes(range(100, 132))
SEGMENTS = SegmentationConfig(segment_size_bytes=128)
PICTURE = random.Random(2).randbytes(1_000)
KEY_FILE = {"sealed": {"cipher": "aes-256-gcm", "key": KEY.hex()}}
TEXTS = (KEY.hex(), KEY.hex().upper(), repr(KEY))


@pytest.fixture(scope="module")
def made(log, tmp_path_factory):
    """Make two stores that overlap, with a channel in clear, a sealed one, and one of the other profile."""
    folder = tmp_path_factory.mktemp("stores")
    team, sealed, logos = log("team"), log("sealed"), log("logos")
    for number in range(3):
        for sender in ("alice", "bob", "carol"):
            team.message(sender, b"%s says %d" % (sender.encode(), number))
    team.message("carol", None)
    pieces = team.file("alice", PICTURE, SEGMENTS)
    broken = team.file("bob", random.Random(3).randbytes(300), SEGMENTS)
    secrets = [sealed.message("dave", b"secret %d" % number) for number in range(2)]
    lost = {pieces[3].message_id, broken[0].message_id, broken[1].message_id}

    messages = [waku for message, waku in team.sent if message.message_id not in lost]
    retry = replace(messages[0], timestamp_ns=messages[0].timestamp_ns + 30_000_000_000)
    messages += [retry, team.wrapped(b"\xff\xfe garbage")]
    messages += [replace(waku, payload=AesGcm(KEY).encrypt(waku.payload)) for _, waku in sealed.sent]
    # A forgery: in clear, though the channel has a key.
    messages.append(sealed.wrapped(sealed.sent[0][1].payload))
    for part in Segmenter(SegmentationConfig(), LIP_243).split(b"in the other wire").segments:
        message = logos.message("erin", part.content)
        nim = replace(logos.wrapped(NIM_SDS.encode(message)), meta=Profile.LOGOS.marker)
        messages.append(nim)
    stores = {"a": messages[:20], "b": messages[15:]}
    for name, held in stores.items():
        with NwakuArchive(folder / f"{name}.db") as archive:
            for message in held:
                archive.append(SHARD, message)
    return SimpleNamespace(
        sources=[f"{name}=sqlite:{folder / name}.db" for name in stores],
        messages=len(messages),
        rows=sum(map(len, stores.values())),
        overlap=5,
        stores={name: len(held) for name, held in stores.items()},
        secrets=[message.content for message in secrets],
        keys=ChannelKeys.from_mapping(KEY_FILE),
    )


@pytest.fixture(scope="module")
def finished(spark, made, tmp_path_factory):
    told: list[RunProgress] = []
    out = tmp_path_factory.mktemp("runs") / "run"
    summary = run(made.sources, out, keys=made.keys, blooms=True, rate_limit=10, spark=spark, progress=told.append)
    return SimpleNamespace(out=out, summary=summary, told=told)


def rows(out: Path, name: str) -> list[dict]:
    return RunTables(out).all(name)


def test_every_row_is_accounted_for(made, finished):
    balance = finished.summary.balance
    assert balance.adds_up
    assert (balance.rows_in, balance.duplicates) == (made.rows, made.overlap)
    # The garbage and the forgery; one retry; one sync message; a segment of a message that lacks two.
    assert (balance.quarantined, balance.retransmissions, balance.sync, balance.incomplete) == (2, 1, 1, 1)
    # Nine said, eight segments of the picture that came, two sealed, one of the other profile.
    assert balance.delivered == 9 + 8 + 2 + 1
    told = json.loads((finished.out / "run.json").read_text())["balance"]
    assert told["adds_up"] is True
    assert told["formula"] == {"in": made.rows, "delivered": 21, "parked": 1, "quarantined": 2, "duplicates": 6}
    assert str(balance).startswith(f"{made.rows} rows in = 5 duplicates + 2 quarantined")


def test_both_profiles_and_encrypted_channels_are_read(made, finished):
    delivered = rows(finished.out, "delivered")
    payloads = {(row["channel_id"], row["payload"]) for row in delivered}
    assert {("sealed", secret) for secret in made.secrets} <= payloads
    assert ("logos", b"in the other wire") in payloads
    assert ("team", PICTURE) in payloads
    assert len(delivered) == 9 + 1 + 2 + 1
    assert {row["profile"] for row in rows(finished.out, "sds_messages") if row["channel_id"] == "logos"} == {"logos"}
    order = [(row["channel_id"], row["lamport"]) for row in delivered]
    assert order == sorted(order)


def test_the_quarantine_says_why_and_who_had_it(finished):
    reasons = {row["status"]: row["error"] for row in rows(finished.out, "quarantine")}
    assert reasons.keys() == {"not-for-us"}
    assert len(rows(finished.out, "quarantine")) == 2
    assert {tuple(row["sources"]) for row in rows(finished.out, "quarantine")} == {("b",)}


def test_the_tables_are_those_of_the_registry(spark, finished):
    for table in TABLES:
        written = spark.read.parquet(str(finished.out / "tables" / table.name)).schema
        declared = spark.createDataFrame([], table.schema).schema
        assert written.simpleString() == declared.simpleString(), table.name
        assert tuple(written.names) == table.columns
        content = rows(finished.out, table.name)
        found = [tuple(str(row[name]) for name in table.keys) for row in content]
        assert len(set(found)) == len(found), table.name
    assert {child.name for child in (finished.out / "tables").iterdir()} == {table.name for table in TABLES}


def test_each_store_is_held_against_all(made, finished):
    told = {row["source"]: row for row in rows(finished.out, "store_completeness")}
    assert {name: row["messages"] for name, row in told.items()} == made.stores
    assert all(row["known"] == made.messages == row["messages"] + row["missing"] for row in told.values())


def test_the_report_needs_no_spark(finished):
    report = report_of(RunTables(finished.out))
    assert [channel.channel_id for channel in report.channels] == ["team", "sealed", "logos"]
    assert (report.totals["delivered"], report.totals["missing"], report.totals["incomplete"]) == (13, 2, 1)
    assert report.quarantined == {"not-for-us": 2}
    assert report.archive == "a, b"


def unix_micros(instant):
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize("name", ["sds_messages", "delivered"])
def test_a_table_is_a_dataframe_of_spark(name, spark, finished):
    tables = RunTables(finished.summary.folder)
    frame = tables.dataframe(spark, name)
    assert frame.columns == list(table_named(name).columns)
    # Python has instants of Spark without their zone.
    columns = [name for name, kind in types_of(table_named(name).schema).items() if kind != "timestamp"]
    instants = [f"unix_micros({column}) AS {column}" for column in frame.columns if column not in columns]
    found = frame.selectExpr(*columns, *instants).collect()
    expected = [
        {column: row[column] for column in columns}
        | {column: unix_micros(row[column]) for column in frame.columns if column not in columns}
        for row in tables.all(name)
    ]
    assert sorted(repr(row.asDict(recursive=True)) for row in found) == sorted(map(repr, expected))


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_a_table_is_a_dataframe_of_pandas(name, finished):
    tables = RunTables(finished.out)
    frame = tables.pandas(name)
    assert list(frame) == list(table_named(name).columns)
    # What is null is <NA>, NaN or None there, as the type of the column has it.
    for column in frame:
        known = [None if absent else value for value, absent in zip(frame[column], frame[column].isna(), strict=True)]
        told = [row[column] for row in tables.all(name)]
        assert [list(value) if isinstance(value, np.ndarray) else value for value in known] == told


def test_pandas_gets_the_wanted_columns_and_rows_with_exact_times(finished):
    tables = RunTables(finished.out)
    asked = tables.pandas("ack_latency", ["sender_id", "acked_at_ns"], ds.field("channel_id") == "team")
    told = [row for row in tables.all("ack_latency") if row["channel_id"] == "team"]
    assert {row["acked_at_ns"] is None for row in told} == {True, False}
    assert asked["sender_id"].tolist() == [row["sender_id"] for row in told]
    assert [None if pd.isna(at) else at for at in asked["acked_at_ns"]] == [row["acked_at_ns"] for row in told]
    nothing = tables.pandas("ack_latency", ["acked_at_ns"], ds.field("channel_id") == "nowhere")
    assert (list(nothing), len(nothing), nothing["acked_at_ns"].dtype) == (
        ["acked_at_ns"],
        0,
        asked["acked_at_ns"].dtype,
    )


def test_messages_come_out_as_files_lines_and_rows(finished, tmp_path):
    tables = RunTables(finished.out)
    files = export(tables, tmp_path / "files", channel_id="team")
    assert files.messages == 10
    index = [json.loads(line) for line in (tmp_path / "files" / "messages.jsonl").read_text().splitlines()]
    assert PICTURE in {(tmp_path / "files" / entry["file"]).read_bytes() for entry in index}
    assert export(tables, tmp_path / "lines", format="jsonl").messages == 13
    lines = [json.loads(line) for line in (tmp_path / "lines" / "messages.jsonl").read_text().splitlines()]
    assert PICTURE in {base64.b64decode(line["payload_base64"]) for line in lines}
    export(tables, tmp_path / "rows", format="parquet")
    assert pq.read_metadata(tmp_path / "rows" / "messages.parquet").num_rows == 13
    for wrong in ({"format": "tar"}, {"channel_id": "none"}):
        with pytest.raises(ConfigurationError):
            export(tables, tmp_path / "new", **wrong)
    with pytest.raises(ConfigurationError, match="is there already"):
        export(tables, tmp_path / "files")


def test_no_key_is_in_a_plan_or_in_the_folder(spark, made, finished, capsys):
    source = open_source(spark, made.sources[1].removeprefix("b="))
    for plan in (stages.decoded(source, keys=made.keys), stages.bloom_evidence(source, keys=made.keys)):
        plan.explain("extended")
    shown = capsys.readouterr().out
    assert "mapinarrow" in shown.lower()
    assert not any(text in shown for text in TEXTS)
    for file in finished.out.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert KEY not in content
            assert not any(text.encode() in content for text in TEXTS)


@pytest.mark.full
def test_the_same_run_again_writes_nothing_and_another_begins_anew(spark, made, finished):
    before = {file: file.stat().st_mtime_ns for file in (finished.out / "tables").rglob("*.parquet")}
    told: list[RunProgress] = []
    again = run(
        made.sources, finished.out, keys=made.keys, blooms=True, rate_limit=10, spark=spark, progress=told.append
    )
    assert again.balance == finished.summary.balance
    assert again.resumed == len(TABLES)
    assert all(step.resumed for step in told)
    assert {file: file.stat().st_mtime_ns for file in (finished.out / "tables").rglob("*.parquet")} == before


def test_progress_tells_each_step_at_its_beginning_and_end(finished):
    begun = [step.step for step in finished.told if step.results is None]
    ended = [step.step for step in finished.told if step.results is not None]
    assert begun == ended == list(step_names(RunOptions(blooms=True)))
    tables = [result.name for step in finished.told for result in step.results or ()]
    assert len(tables) == len(set(tables))
    assert set(tables) >= {table.name for table in TABLES}


@pytest.mark.parametrize("wrong", [{"epoch_ms": 0}, {"rate_limit": 0}])
def test_options_that_cannot_be_are_refused(tmp_path, wrong):
    with pytest.raises(ConfigurationError):
        run(["sqlite:none.db"], tmp_path / "run", **wrong)

"""What a world leaves behind: the store's archive, and the truth beside it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from fairway.cli.simulate import command
from fairway.errors import ConfigurationError
from fairway.simulation.archiving import truth_of, truth_path, write_archive
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.runner import Run
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import WAKU_SDS
from fairway.wire.waku_message import WakuMessage, message_hash

PLAN = SimulationPlan(
    participants=3,
    duration_ms=180_000,
    loss=0.2,
    messages_per_hour=120,
    long_share=0.3,
    joins=0,
    leaves=1,
    partitions=0,
    bloom_capacity=500,
    segment_size_bytes=320,
    parity_rate=0.5,
    store_gaps=0.2,
)


def ran(plan, channel_id="harbour"):
    run = Run(plan, channel_id)
    report = run.through(lambda _, __: None)
    assert report.ok, report.violations
    return run


@pytest.fixture(scope="module")
def run():
    return ran(PLAN)


def test_an_archive_holds_what_the_store_took_under_its_own_hashes(run, tmp_path):
    path = tmp_path / "world.sqlite3"
    count = write_archive(run, path)
    with NwakuArchive(path, read_only=True) as archive:
        rows = list(archive.read())
    stored = {publication.message_hash for publication in run.stored}
    assert count == len(rows) == len(stored) < run.world.network.statistics().published
    assert {row.message_hash for row in rows} == stored
    for row in rows:
        message = WakuMessage(
            payload=row.payload, content_topic=row.content_topic, timestamp_ns=row.timestamp_ns, meta=row.meta
        )
        assert message_hash(row.pubsub_topic, message) == row.message_hash


def test_the_truth_tells_who_sent_and_was_delivered_what(run, tmp_path):
    path = tmp_path / "world.sqlite3"
    count = write_archive(run, path)
    truth = json.loads(truth_path(path).read_text())
    assert truth == {"archived": count, **truth_of(run)}
    assert [sent["number"] for sent in truth["sent"]] == list(range(len(truth["sent"])))
    assert set(truth["delivered"]) == set(truth["missing"]) == {"p00", "p01", "p02"}
    everybody = set(truth["delivered"])
    left = {name for name, presence in run.ledger.presences.items() if presence.left_ms is not None}
    for sent in truth["sent"]:
        reached = {name for name, numbers in truth["delivered"].items() if sent["number"] in numbers}
        assert reached | {sent["sender_id"]} | left == everybody
    sizes = Counter(len(sent["sds_ids"]) for sent in truth["sent"])
    assert max(sizes) > 1
    assert any(sent["parity_ids"] for sent in truth["sent"])


def test_what_was_declared_missing_is_in_the_truth():
    run = Run(replace(PLAN, store_gaps=1.0, loss=0.6, lost_timeout_ms=5_000, settle_ms=0, absences_per_hour=40, seed=3))
    run.through(lambda _, __: None)
    missing = truth_of(run)["missing"]
    assert sum(map(len, missing.values())) == len(run.ledger.losses) > 0


@pytest.mark.full
def test_worlds_with_channels_of_their_own_share_an_archive(tmp_path):
    runs = [ran(replace(PLAN, seed=seed), f"world-{seed}") for seed in (1, 2)]
    with NwakuArchive(tmp_path / "all.sqlite3") as archive:
        for one in runs:
            for publication in one.stored:
                archive.append(publication.pubsub_topic, publication.message, publication.message_hash)
        channels = Counter(WAKU_SDS.decode(row.payload).channel_id for row in archive.read())
    assert channels == {f"world-{seed}": len(one.stored) for seed, one in enumerate(runs, 1)}


def test_nothing_is_overwritten_and_a_folder_must_be_there(run, tmp_path):
    path = tmp_path / "world.sqlite3"
    truth_path(path).write_text("mine")
    with pytest.raises(ConfigurationError, match=r"world\.sqlite3\.truth\.json exists"):
        write_archive(run, path)
    assert not path.exists()
    with pytest.raises(ConfigurationError, match="there is no folder"):
        write_archive(run, tmp_path / "nowhere" / "world.sqlite3")


def test_the_command_writes_both_files_and_says_so(tmp_path):
    app = typer.Typer()
    app.command()(command)
    path = tmp_path / "world.sqlite3"
    words = ["--participants", "3", "--hours", "0.05", "--joins", "0", "--leaves", "0", "--bloom-capacity", "500"]
    result = CliRunner().invoke(app, [*words, "--archive", str(path)])
    assert result.exit_code == 0, result.output
    with NwakuArchive(path, read_only=True) as archive:
        assert f"{archive.count():,} messages in" in result.stderr.replace("\n", " ")
    plain = CliRunner().invoke(app, words)
    assert plain.stdout == result.stdout
    again = CliRunner().invoke(app, [*words, "--archive", str(path)])
    assert isinstance(again.exception, ConfigurationError)

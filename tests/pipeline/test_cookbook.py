"""The recipes of docs/cookbook.md run as they stand, print what the page shows, and agree with what was generated."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.storage.nwaku_archive import NwakuArchive
from fairway.testing.archives import truth
from fairway.wire.waku_message import WakuMessage

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "cookbook.md"


class Section(NamedTuple):
    """A part of the page under one heading."""

    title: str
    code: str
    shown: str | None
    """The block below the code: what the code prints."""


def sections():
    """Return the sections of the page that have code, each of which has one block of it."""
    for part in re.split(r"^##+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        found = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", part, re.DOTALL)
        for code, shown in found:
            assert len(found) == 1, "a section is one recipe"
            yield Section(part.partition("\n")[0], code, shown.strip() or None)


BEGIN, OWN, LARGE, *RECIPES = sections()


def number_of(recipe):
    return int(recipe.title.partition(".")[0])


def printed(section, names):
    """Run the code of a section and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(section.code, section.title, "exec"), names)
    return out.getvalue().strip()


@pytest.fixture(scope="module")
def begun(spark):
    """Return the names that the first block makes; nothing that it keeps in memory outlives the module."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed(BEGIN, names)
    assert names["spark"] is spark
    yield names
    spark.catalog.clearCache()


@pytest.fixture(scope="module")
def facts(spark, begun):
    return truth(spark, begun["plan"]).persist()


def counted(frame, *by):
    return {tuple(row[name] for name in by): row["count"] for row in frame.groupBy(*by).count().collect()}


def losses_are_those_that_were_drawn(names, facts):
    sent = counted(facts.where("fact = 'carrier' AND kind = 'content' AND NOT is_retransmission"), "channel_id")
    lost = counted(facts.where("fact = 'missing' AND NOT is_rebuilt"), "channel_id")
    told = {(row.channel_id,): (row.known, row.lost) for row in names["losses"].collect()}
    assert told == {channel: (sent[channel] + lost[channel], lost[channel]) for channel in sent}


def the_lacking_messages_are_those_that_the_other_store_alone_had(names, facts):
    alone = facts.where("fact = 'carrier' AND sources = array('store-0')")
    assert names["lacking"].count() == alone.count() > 0


def every_transmission_is_counted(names, facts):
    sent = counted(facts.where("fact = 'carrier' AND status = 'ok'"), "sender_id")
    told = names["rate"].groupBy("sender_id").agg(F.sum("messages").alias("count")).collect()
    assert {(row["sender_id"],): row["count"] for row in told} == sent


def the_stores_are_those_that_had_it(names, facts):
    held = facts.where("fact = 'carrier'").where(names["wanted"]).select("message_hash", "sources")
    assert {(row.message_hash, *row.sources) for row in names["carried"].collect()} == {
        (row.message_hash, *row.sources) for row in held.collect()
    }


def as_much_is_read_as_out_of_the_archive(names, facts):
    assert counted(names["read"], "status") == counted(facts.where("fact = 'carrier'"), "status")


def the_files_are_what_was_sent(names, facts):
    written = list(Path("files").iterdir())
    assert all(hashlib.sha256(file.read_bytes()).hexdigest().startswith(file.name) for file in written)
    sent = {row.message_id for row in facts.where("fact = 'delivered' AND segments > 1").collect()}
    assert len(written) == 3
    assert all(any(message_id.startswith(file.name) for message_id in sent) for file in written)


def what_waits_waits_for_what_is_lost(names, facts):
    lost = facts.where("fact = 'missing' AND NOT is_rebuilt").select("channel_id", "message_id")
    assert names["waiting"].count() > 0
    assert names["waiting"].join(lost, ["channel_id", "message_id"], "left_anti").count() == 0


CHECKS = {
    1: losses_are_those_that_were_drawn,
    3: the_lacking_messages_are_those_that_the_other_store_alone_had,
    4: every_transmission_is_counted,
    5: the_stores_are_those_that_had_it,
    6: as_much_is_read_as_out_of_the_archive,
    8: the_files_are_what_was_sent,
    10: what_waits_waits_for_what_is_lost,
}
"""What else holds of the names that a recipe leaves, by its number."""


def test_there_are_ten_recipes_and_each_shows_what_it_prints():
    assert [number_of(recipe) for recipe in RECIPES] == [*range(1, 11)]
    assert all(recipe.shown for recipe in (OWN, LARGE, *RECIPES))


@pytest.mark.full
@pytest.mark.parametrize("recipe", [pytest.param(recipe, id=recipe.title) for recipe in RECIPES])
def test_a_recipe_prints_what_the_page_shows(recipe, begun, facts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = dict(begun)
    assert printed(recipe, names) == recipe.shown
    if number_of(recipe) in CHECKS:
        CHECKS[number_of(recipe)](names, facts)


@pytest.mark.full
def test_archives_of_ones_own_are_read_by_their_uris(begun, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, source in (("one", "store-0"), ("two", "store-1")):
        with NwakuArchive(tmp_path / f"{name}.db") as archive:
            for row in begun["archive"].where(F.col("source") == source).toLocalIterator():
                message = WakuMessage(
                    payload=row.payload, content_topic=row.content_topic, timestamp_ns=row.timestamp_ns, meta=row.meta
                )
                archive.append(row.pubsub_topic, message)
    assert printed(OWN, dict(begun)) == OWN.shown


@pytest.mark.full
def test_payloads_are_decoded_in_a_stream_as_in_a_table(spark, begun, facts, tmp_path):
    (recipe,) = (recipe for recipe in RECIPES if "Kafka" in recipe.title)
    made, decoded, shown = re.fullmatch(
        r"(kafka = .*?\n)(received = .*\n)(read\.group.*\n)", recipe.code, re.DOTALL
    ).groups()
    assert ".show()" in shown
    names = dict(begun)
    exec(made, names)
    names["kafka"].write.parquet(str(tmp_path / "kafka"))
    names["kafka"] = spark.readStream.schema(names["kafka"].schema).parquet(str(tmp_path / "kafka"))
    exec(decoded, names)
    stream = names["read"].writeStream.format("memory").queryName("read_of_kafka").trigger(availableNow=True).start()
    stream.awaitTermination()
    names["read"] = spark.table("read_of_kafka")
    as_much_is_read_as_out_of_the_archive(names, facts)


@pytest.mark.full
def test_the_recipes_print_the_same_out_of_the_tables_of_a_run(begun, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = dict(begun)
    # Spark began before the test did, in another folder.
    code = LARGE.code.replace('"archive"', repr(str(tmp_path / "archive"))).replace(
        '"run"', repr(str(tmp_path / "run"))
    )
    assert printed(LARGE._replace(code=code), names) == LARGE.shown
    for recipe in (RECIPES[number - 1] for number in (1, 9)):
        assert printed(recipe, dict(names)) == recipe.shown, recipe.title

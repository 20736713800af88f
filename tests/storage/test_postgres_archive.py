"""An archive in PostgreSQL, against a real server that lives as long as these tests."""

from __future__ import annotations

import sys

import pytest

from fairway.errors import ConfigurationError, DecodeError, MissingExtraError, SnapshotError, StorageError
from fairway.storage.archive import ArchiveCursor, time_slice
from fairway.storage.postgres_archive import PostgresArchive

psycopg = pytest.importorskip("psycopg", reason="needs the extra 'postgresql'")

SHARD = "/waku/2/rs/1/0"
HOUR_NS = 3_600_000_000_000
# As nwaku 0.36 leaves it after its seven migrations.
SCHEMA = """
CREATE TABLE messages (
    pubsubTopic VARCHAR NOT NULL, contentTopic VARCHAR NOT NULL, payload VARCHAR, version INTEGER NOT NULL,
    id VARCHAR NOT NULL, messageHash VARCHAR NOT NULL, timestamp BIGINT NOT NULL, meta VARCHAR DEFAULT NULL,
    CONSTRAINT messageIndex PRIMARY KEY (messageHash, timestamp)
) PARTITION BY RANGE (timestamp);
CREATE INDEX idx_messages_messagehash ON messages (messagehash);
CREATE INDEX idx_messages_timestamp ON messages (timestamp);
"""


@pytest.fixture(scope="module")
def server(postgres):
    return postgres.uri


@pytest.fixture
def database(server):
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS messages")
        connection.execute(SCHEMA)
        yield connection


def hash_of(number: int) -> str:
    return f"{(number * 2_654_435_761) % 2**256:064x}"


def put(connection, numbers, *, timestamp=lambda number: number * HOUR_NS // 10, payload="00", meta=None, topics=2):
    for hour in {timestamp(number) // HOUR_NS for number in numbers}:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS messages_{hour} PARTITION OF messages"
            f" FOR VALUES FROM ({hour * HOUR_NS}) TO ({(hour + 1) * HOUR_NS})"
        )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO messages (id, messageHash, pubsubTopic, contentTopic, payload, version, timestamp, meta)"
            " VALUES ('0', %s, %s, %s, %s, 0, %s, %s)",
            [
                (hash_of(number), SHARD, f"/app/1/{number % topics}/proto", payload, timestamp(number), meta)
                for number in numbers
            ],
        )


def hashes(archive, **options) -> list[str]:
    return [message.message_hash.hex() for page in archive.pages(**options) for message in page]


def test_hexadecimal_text_comes_back_as_bytes(server, database):
    put(database, [7], payload=b"caf\xc3\xa9".hex(), meta=b"m".hex().upper())
    with PostgresArchive(server) as archive:
        ((message,),) = archive.pages()
    assert (message.payload, message.meta, message.pubsub_topic, message.content_topic, message.timestamp_ns) == (
        b"caf\xc3\xa9",
        b"m",
        SHARD,
        "/app/1/1/proto",
        7 * HOUR_NS // 10,
    )
    assert message.message_hash == bytes.fromhex(hash_of(7))


@pytest.mark.parametrize("count", [1, 3, 8, 200])
def test_slices_hold_every_message_once(server, database, count):
    put(database, range(100))
    with PostgresArchive(server) as archive:
        slices = archive.slices(count)
        found = [found for part in slices for found in hashes(archive, part=part)]
    assert len(slices) <= count
    assert sorted(found) == sorted(map(hash_of, range(100)))


def test_pages_end_after_so_many_rows_or_bytes_and_miss_nothing_at_one_timestamp(server, database):
    put(database, range(50), timestamp=lambda _: HOUR_NS, payload="ab" * 100)
    with PostgresArchive(server) as archive:
        by_rows = list(archive.pages(page_rows=7))
        by_bytes = list(archive.pages(page_bytes=250))
    assert [len(page) for page in by_rows] == [7] * 7 + [1]
    assert [len(page) for page in by_bytes] == [3] * 16 + [2]
    for pages in (by_rows, by_bytes):
        assert [message.message_hash.hex() for page in pages for message in page] == sorted(map(hash_of, range(50)))


def test_the_topics_of_a_slice_are_listed_up_to_a_number(server, database):
    put(database, range(30), topics=3)
    with PostgresArchive(server) as archive:
        assert set(archive.topics(time_slice(), 3) or ()) == {f"/app/1/{number}/proto" for number in range(3)}
        assert archive.topics(time_slice(), 2) is None
        assert archive.topics(time_slice(0, 0), 2) == ("/app/1/0/proto",)


def test_places_are_counted_in_the_order_of_the_archive(server, database):
    put(database, range(10))
    with PostgresArchive(server) as archive:
        everything = time_slice()
        place = archive.nth(4, everything)
        assert place == ArchiveCursor(3 * HOUR_NS // 10, bytes.fromhex(hash_of(3)))
        rest = everything._replace(after=place)
        assert hashes(archive, part=rest) == [hash_of(number) for number in range(4, 10)]
        assert archive.nth(7, rest) is None
        assert archive.last(everything) == archive.nth(10, everything)
        assert archive.estimate(rest) == 6
        assert archive.last(time_slice(10 * HOUR_NS)) is None


def test_a_payload_that_is_not_hexadecimal_is_read_as_text_and_a_hash_is_an_error(server, database):
    put(database, [1], timestamp=lambda _: HOUR_NS, payload="not hex")
    put(database, [2], timestamp=lambda _: HOUR_NS + 1)
    with PostgresArchive(server) as archive:
        found = [message for page in archive.pages(page_rows=1) for message in page]
        assert [message.payload for message in found] == [b"not hex", b"\0"]
        database.execute("UPDATE messages SET messageHash = 'zz' WHERE payload = 'not hex'")
        with pytest.raises(DecodeError, match="'zz' is no message hash"):
            list(archive.pages())


def test_reading_cannot_write(server, database, monkeypatch):
    connect, connections = psycopg.connect, []

    def noted(*where, **how):
        connections.append(connect(*where, **how))
        return connections[-1]

    monkeypatch.setattr(psycopg, "connect", noted)
    with PostgresArchive(server) as archive:
        archive.estimate(time_slice())
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connections[0].execute("DELETE FROM messages")


def test_a_database_of_something_else_is_named(server, database):
    database.execute("ALTER TABLE messages DROP COLUMN meta")
    with PostgresArchive(server) as archive:
        with pytest.raises(SnapshotError, match='column "meta" does not exist'):
            list(archive.pages())
        database.execute("DROP TABLE messages")
        with pytest.raises(SnapshotError, match=r'"messages" does not exist.* the database of a nwaku store node'):
            list(archive.pages())


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path):
    with pytest.raises(StorageError, match=r"no connection to PostgreSQL: [^\n]+\Z") as raised:
        PostgresArchive(f"postgresql://alice:hidden@/postgres?host={tmp_path}").estimate(time_slice())
    assert "hidden" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="an example is"):
        PostgresArchive("postgresql://?nonsense").estimate(time_slice())


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"needs psycopg, .* pip install 'fairway\[postgresql\]'"):
        PostgresArchive("postgresql://127.0.0.1/postgres").estimate(time_slice())

"""Archives made with the real codecs, and one Spark session for all tests that need one."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from fairway.options import IdRule, SegmentationConfig
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.segment import WAKU_SEGMENTS
from fairway.wire.waku_message import WakuMessage, message_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from s3_server import Bucket, S3Server

SHARD = "/waku/2/rs/1/0"
START_MS = 1_760_000_000_000
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For tables of a few hundred rows: to compile the plans costs more than it gives back."""
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


@dataclass
class Log:
    """A channel as its participants see it, every message taken to have reached everybody at once."""

    channel_id: str
    now_ms: int = START_MS
    lamport: int = START_MS
    history: list[HistoryEntry] = field(default_factory=list)
    sent: list[tuple[SdsMessage, WakuMessage]] = field(default_factory=list)

    def message(self, sender_id: str, content: bytes | None, *, elapsed_ms: int = 1_000) -> SdsMessage:
        """Make the next message: content, or sync if there is none."""
        self.now_ms += elapsed_ms
        self.lamport = max(self.lamport + 1, self.now_ms) if content else self.lamport + 1
        message = SdsMessage(
            message_id=make_message_id(
                IdRule.UNIQUE,
                sender_id=sender_id,
                lamport=self.lamport,
                content=content or b"",
                now_ms=self.now_ms,
                sequence=0,
            ),
            sender_id=sender_id,
            channel_id=self.channel_id,
            lamport_timestamp=self.lamport,
            causal_history=tuple(self.history[-2:]),
            bloom_filter=bytes(64),
            content=content,
        )
        waku = self.wrapped(WAKU_SDS.encode(message))
        if content:
            self.history.append(HistoryEntry(message.message_id, message_hash(SHARD, waku), sender_id))
        self.sent.append((message, waku))
        return message

    def file(self, sender_id: str, payload: bytes, config: SegmentationConfig) -> list[SdsMessage]:
        """Send a payload in segments, made in one go."""
        parts = Segmenter(config, WAKU_SEGMENTS).split(payload).segments
        first = self.message(sender_id, parts[0].content)
        messages = [first]
        for part in parts[1:]:
            self.now_ms -= 1  # the Lamport timestamps of one message follow each other
            messages.append(self.message(sender_id, part.content, elapsed_ms=1))
        return messages

    def wrapped(self, payload: bytes) -> WakuMessage:
        return WakuMessage(
            payload=payload,
            content_topic=f"/tests/1/{self.channel_id}/proto",
            timestamp_ns=self.now_ms * 1_000_000,
        )


@pytest.fixture(scope="session")
def log() -> Callable[[str], Log]:
    return Log


@pytest.fixture
def write_archive(tmp_path: Path) -> Callable[[list[WakuMessage]], Path]:
    """Write messages into an archive, in an order that tells nothing."""

    def write(messages: list[WakuMessage]) -> Path:
        path = tmp_path / "store.sqlite3"
        shuffled = random.Random(1).sample(messages, len(messages))
        with NwakuArchive(path) as archive:
            for message in shuffled:
                archive.append(SHARD, message)
        return path

    return write


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from fairway.pipeline.session import create_session

    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"} | INTERPRETED
    session = create_session("fairway tests", little_java=True, config=settings)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile its plans, as it does for users."""
    for name, value in COMPILED.items():
        spark.conf.set(name, value)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server; `bucket` gives a test a place of its own in it."""
    pytest.importorskip("pyarrow")
    from s3_server import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    return s3.new_bucket()


@pytest.fixture(scope="session")
def gcs() -> Iterator[str]:
    """A URI of Google's object store with a place for a path; skips the test where its emulator cannot be had."""
    from cloud_stores import gcs_program, gcs_server

    program = gcs_program()
    if program is None:
        _missing("fake-gcs-server needs Go and its module proxy")
    with gcs_server(program) as uri:
        yield uri


@pytest.fixture(scope="session")
def azure(tmp_path_factory) -> Iterator[str]:
    """A URI of Azure's object store likewise."""
    from cloud_stores import azure_store, azurite_program

    program = azurite_program()
    if not program:
        _missing("Azurite needs Node.js with npm and its registry")
    with azure_store(program, tmp_path_factory.mktemp("azure")) as uri:
        yield uri


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI the object stores must run, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory) -> Iterator[str]:
    """The URI of HDFS on this machine; skips the test where its jars cannot be had."""
    pytest.importorskip("hdfs_native")
    from hdfs_cluster import hdfs_cluster, jars

    classes = jars()
    if not classes:
        pytest.skip("the jars of HDFS need Maven")
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs"), classes) as uri:
        yield uri

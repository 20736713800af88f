"""Files that went over a channel, in one message or in parts, come out of an export under their names."""

from __future__ import annotations

import json
import random
from hashlib import sha256

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from fairway.archives.export import FileJoiner, file_name, single_messages
from fairway.wire.batch import encode_batch
from fairway.wire.file_message import FileManifest, FilePart, WholeFile, encode_file_message

CONTENT = random.Random(3).randbytes(2_500)
PART_BYTES = 1_000


def parts_of(content, name="chart.pdf", **changed):
    """The payloads of a manifest and its parts."""
    pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    told = {
        "name": name,
        "media_type": "application/pdf",
        "size_bytes": len(content),
        "part_size_bytes": PART_BYTES,
        "content_hash": sha256(content).digest(),
        "part_hashes": tuple(sha256(piece).digest() for piece in pieces),
    }
    manifest = encode_file_message(FileManifest(**{**told, **changed}))
    manifest_id = sha256(manifest).digest()
    return [
        manifest,
        *(
            encode_file_message(FilePart(manifest_id=manifest_id, index=index, content=piece))
            for index, piece in enumerate(pieces)
        ),
    ]


def row(payload, sender_id="alice", number=0):
    message_id = sha256(payload).hexdigest()
    return {"channel_id": "team", "sender_id": sender_id, "message_id": message_id, "sds_ids": [f"{number}"]}


def taken(joiner, payloads, sender_id="alice"):
    return [joiner.take(row(payload, sender_id, number), payload) for number, payload in enumerate(payloads)]


def test_parts_are_joined_in_whatever_order_they_are_read(rng):
    payloads = parts_of(CONTENT)
    rng.shuffle(payloads)
    with FileJoiner() as joiner:
        assert all(taken(joiner, payloads))
        [(name, content)] = [(file.file.name, b"".join(file.pieces())) for file in joiner.joined()]
        assert list(joiner.rest()) == []
    assert (name, content) == ("chart.pdf", CONTENT)


def test_texts_and_whole_files_are_not_set_aside():
    with FileJoiner() as joiner:
        assert not any(taken(joiner, [b"", b"hello", encode_file_message(WholeFile(name="a", content=b"b"))]))
        assert not any(taken(joiner, [parts_of(CONTENT)[0][:-1]]))


def forged_part(payloads):
    return encode_file_message(FilePart(manifest_id=sha256(payloads[0]).digest(), index=1, content=b"forged"))


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (lambda payloads: payloads[:-1], False),
        (lambda payloads: payloads[1:], False),
        (lambda payloads: [*payloads[:2], forged_part(payloads), payloads[3]], False),
        (lambda payloads: [*payloads, forged_part(payloads)], True),
        (lambda payloads: [*payloads, *payloads], True),
        (lambda _: parts_of(CONTENT, content_hash=bytes(32)), False),
    ],
    ids=["a part lacks", "the manifest lacks", "a part is forged", "and the right one is there", "twice", "other hash"],
)
def test_what_makes_no_file_whole_comes_out_as_it_came(change, whole):
    payloads = change(parts_of(CONTENT))
    with FileJoiner() as joiner:
        taken(joiner, payloads)
        joined = [b"".join(file.pieces()) for file in joiner.joined()]
        rest = list(joiner.rest())
    assert joined == ([CONTENT] if whole else [])
    assert len(rest) == len(payloads) - (4 if whole else 0)
    assert all(told == row(payload, number=int(told["sds_ids"][0])) for told, payload in rest)
    assert {payload for _, payload in rest} <= set(payloads)


def test_parts_of_another_sender_are_of_no_use():
    payloads = parts_of(CONTENT)
    with FileJoiner() as joiner:
        taken(joiner, payloads[:1], "alice")
        taken(joiner, payloads[1:], "mallory")
        assert list(joiner.joined()) == []
        assert len(list(joiner.rest())) == 4


@pytest.mark.parametrize(
    ("name", "exported"),
    [
        ("chart-2.pdf", "chart-2.pdf"),
        ("Karte von Föhr.pdf", "file.pdf"),
        ("what?", "file"),
        ("a.%2e", "file"),
        ("x" * 200, "file"),
    ],
)
def test_names_that_a_storage_could_take_amiss_are_replaced(name, exported):
    assert file_name(name) == exported


@pytest.mark.full
@pytest.mark.spark
def test_an_export_has_files_under_their_names_and_texts_under_their_ids(spark, log, write_archive, tmp_path):
    from fairway.archives.export import export
    from fairway.pipeline.run import RunTables, run

    team = log("team")
    note = WholeFile(name="note.txt", media_type="text/plain", content=b"low water at noon")
    for payload in (b"hello", encode_file_message(note), *parts_of(CONTENT)):
        team.message("alice", payload)
    archive = write_archive([waku for _, waku in team.sent])
    run([f"sqlite:{archive}"], tmp_path / "run", spark=spark)
    tables = RunTables(tmp_path / "run")
    done = export(tables, tmp_path / "files")
    assert (done.messages, done.bytes) == (3, 5 + len(note.content) + len(CONTENT))
    index = [json.loads(line) for line in (tmp_path / "files" / "messages.jsonl").read_text().splitlines()]
    written = {(tmp_path / "files" / line["file"]).read_bytes(): line for line in index}
    assert written.keys() == {b"hello", note.content, CONTENT}
    assert "name" not in written[b"hello"]
    told = written[CONTENT]
    assert (told["name"], told["media_type"], told["parts"], told["file_bytes"]) == (
        "chart.pdf",
        "application/pdf",
        3,
        len(CONTENT),
    )
    assert told["file"].endswith("/chart.pdf")
    assert written[note.content]["file"].endswith("/note.txt")
    assert export(tables, tmp_path / "lines", format="jsonl").messages == 6


def test_the_messages_of_a_batch_are_exported_singly():
    batch, other = encode_batch([b"one", b"two"]), b"three"
    rows = [
        {**row(payload, number=number), "segments": segments, "size_bytes": len(payload), "payload": payload}
        for number, (payload, segments) in enumerate([(other, 1), (batch, 1), (batch, 2)])
    ]
    [written] = single_messages([pa.RecordBatch.from_pylist(rows)])
    own = [(each["payload"], each["sds_ids"], each["size_bytes"]) for each in written.to_pylist()]
    assert own == [(other, ["0"], 5), (b"one", ["1"], 3), (b"two", ["1.001"], 3), (batch, ["2"], len(batch))]
    assert [each["message_id"] for each in written.to_pylist()[1:3]] == [
        sha256(payload).hexdigest() for payload in (b"one", b"two")
    ]

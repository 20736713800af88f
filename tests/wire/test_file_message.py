"""The header of a file, its manifest and its parts: what is written is read, and what breaks a rule is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.file_message import (
    FILE_PREFIX,
    MAX_HEADER_BYTES,
    FileManifest,
    FilePart,
    WholeFile,
    decode_file_message,
    encode_file_message,
    file_header,
    largest_part_bytes,
    name_problem,
    read_file_header,
)
from fairway.wire.proto import file_pb2 as pb

hashes = st.binary(min_size=32, max_size=32)
names = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="/\\."), min_size=1, max_size=60)
repetitions = st.integers(0, 2**32 - 1)


@st.composite
def manifests(draw):
    part_hashes = tuple(draw(st.lists(hashes, min_size=1, max_size=5)))
    part_size = draw(st.integers(1, 2**32 - 1))
    last = draw(st.integers(1, part_size))
    return FileManifest(
        name=draw(names),
        media_type="image/svg+xml",
        repetition=draw(repetitions),
        size_bytes=(len(part_hashes) - 1) * part_size + last,
        part_size_bytes=part_size,
        content_hash=draw(hashes),
        part_hashes=part_hashes,
    )


messages = st.one_of(
    st.builds(WholeFile, name=names, repetition=repetitions, content=st.binary(max_size=200)),
    manifests(),
    st.builds(
        FilePart, manifest_id=hashes, index=st.integers(0, 2**32 - 1), content=st.binary(min_size=1, max_size=200)
    ),
)


@given(messages)
def test_a_file_message_survives_the_wire(message):
    payload = encode_file_message(message)
    assert payload.startswith(FILE_PREFIX)
    assert decode_file_message(payload) == message


@pytest.mark.parametrize("raw", [b"", b"hello", b"\xff", FILE_PREFIX[:-1], FILE_PREFIX[:-1] + b"\x02"])
def test_a_raw_payload_and_a_later_version_are_no_file(raw):
    assert decode_file_message(raw) is None


def test_no_text_looks_like_a_file():
    with pytest.raises(UnicodeDecodeError):
        FILE_PREFIX.decode()


def test_the_bytes_of_a_small_file_are_known():
    file = WholeFile(name="a.txt", media_type="text/plain", content=b"hi")
    assert encode_file_message(file).hex() == (
        "ff46494c4501" + "0a17" + "0a05" + b"a.txt".hex() + "120a" + b"text/plain".hex() + "2202" + b"hi".hex()
    )


def test_a_part_fills_a_message_and_not_more():
    part = FilePart(manifest_id=bytes(32), index=2**32 - 1, content=bytes(largest_part_bytes(1_048_576)))
    assert 1_048_500 < len(encode_file_message(part)) <= 1_048_576


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "..",
        ".",
        ".bashrc",
        "a\0b",
        "a\nb",
        "\x1b[2J",
        "photo\u202egnp.exe",
        " a",
        "x" * 256,
    ],
    ids=ascii,
)
def test_a_name_that_is_not_one_visible_component_of_a_path_is_refused(name):
    assert name_problem(name) is not None
    with pytest.raises(ConfigurationError, match="cannot be one"):
        encode_file_message(WholeFile(name=name, content=b"x"))
    hostile = pb.FileMessage(whole=pb.WholeFile(name=name, media_type="text/plain", content=b"x"))
    with pytest.raises(DecodeError, match="cannot be one"):
        decode_file_message(FILE_PREFIX + hostile.SerializeToString())


@pytest.mark.parametrize(
    "name", ["a", "holiday.jpg", "a..b", "über uns.txt", "数据.csv", "-rf", "10:30.log", "x" * 255]
)
def test_other_names_are_accepted(name):
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"size_bytes": 0}, "at least one byte"),
        ({"part_size_bytes": 0}, "at least one byte"),
        ({"size_bytes": 2**63}, "are 461168601842738791 parts, and 2 have a hash"),
        ({"part_hashes": [bytes(32)] * 3}, "are 2 parts, and 3 have a hash"),
        ({"part_hashes": [bytes(32), bytes(31)]}, "one of the hashes has not"),
        ({"content_hash": b""}, "one of the hashes has not"),
        ({"media_type": "text"}, "image/jpeg"),
        ({"media_type": "text/plain\r\nx: y"}, "image/jpeg"),
        ({"name": "../../x"}, "a name is one component of a path"),
    ],
    ids=str,
)
def test_a_manifest_that_contradicts_itself_is_refused(changed, told):
    fields = {
        "name": "a",
        "media_type": "text/plain",
        "size_bytes": 30,
        "part_size_bytes": 20,
        "content_hash": bytes(32),
        "part_hashes": [bytes(32)] * 2,
    }
    good = FILE_PREFIX + pb.FileMessage(manifest=pb.FileManifest(**fields)).SerializeToString()
    assert isinstance(decode_file_message(good), FileManifest)
    bad = FILE_PREFIX + pb.FileMessage(manifest=pb.FileManifest(**(fields | changed))).SerializeToString()
    with pytest.raises(DecodeError, match=told):
        decode_file_message(bad)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (pb.FilePart(manifest_id=b"short", content=b"x"), "has 32 bytes, not 5"),
        (pb.FilePart(manifest_id=bytes(32)), "at least one byte"),
    ],
    ids=["id", "empty"],
)
def test_an_incomplete_part_is_refused(part, told):
    with pytest.raises(DecodeError, match=told):
        decode_file_message(FILE_PREFIX + pb.FileMessage(part=part).SerializeToString())


def test_a_message_without_a_known_kind_is_refused():
    with pytest.raises(DecodeError, match="none of whole, manifest and part"):
        decode_file_message(FILE_PREFIX)


@given(messages)
def test_a_header_has_all_but_content_and_hashes(message):
    header = file_header(encode_file_message(message))
    assert len(header) <= MAX_HEADER_BYTES
    assert file_header(header) == header
    left_out = {"part_hashes": ()} if isinstance(message, FileManifest) else {"content": b""}
    assert read_file_header(header) == replace(message, **left_out)
    if isinstance(message, FilePart):
        assert message.manifest_id in header


@given(st.binary(max_size=200), st.booleans())
def test_other_payloads_have_no_header_and_none_raises(payload, has_prefix):
    header = file_header(FILE_PREFIX * has_prefix + payload)
    assert has_prefix or header == b""
    assert read_file_header(header) is None or header

"""Payloads from files and into files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.cli._files import make_folder, read_payload, save_payload
from fairway.errors import ConfigurationError, MessageTooLargeError, StorageError


def test_a_file_beyond_the_limit_is_refused_with_its_size(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"123456789")
    with pytest.raises(MessageTooLargeError, match="9 bytes, at most 5"):
        read_payload(tmp_path / "a", 5)


@pytest.mark.parametrize("name", ["not there", ".", "nul\0"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str):
    with pytest.raises(ConfigurationError, match="give the path of a readable file"):
        read_payload(tmp_path / name, 5)


def test_a_saved_payload_is_whole_and_nothing_else_is_left(tmp_path: Path):
    make_folder(tmp_path / "in" / "here")
    path = save_payload(tmp_path / "in" / "here", "ab12", b"content")
    assert path == tmp_path / "in" / "here" / "ab12"
    assert path.read_bytes() == b"content"
    save_payload(tmp_path / "in" / "here", "ab12", b"content")
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_or_written_raises(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="cannot be used to save into"):
        make_folder(tmp_path / "file")
    with pytest.raises(StorageError, match="the message is kept until then"):
        save_payload(tmp_path / "gone", "ab12", b"content")

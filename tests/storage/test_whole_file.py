"""A file that is replaced as a whole is the old one or the new one, and one process at a time changes it."""

import os
import stat

import pytest

from fairway.errors import StoreLockedError
from fairway.storage.whole_file import BESIDE, changing, replace_whole


def test_a_half_written_file_of_a_crash_is_replaced(tmp_path):
    path = tmp_path / "file"
    (tmp_path / f".file{BESIDE}").write_bytes(b"half of it")
    replace_whole(path, b"whole")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"whole", [path])


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_private_file_is_for_its_owner_alone_also_where_it_was_not(tmp_path):
    path = tmp_path / "file"
    replace_whole(path, b"for all")
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR
    replace_whole(path, b"secret", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_old_file_is_left_where_the_new_one_cannot_be_written(tmp_path):
    path = tmp_path / "file"
    replace_whole(path, b"old")
    (tmp_path / f".file{BESIDE}").mkdir()
    with pytest.raises(OSError):
        replace_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_one_process_at_a_time_changes_a_file(tmp_path):
    with changing(tmp_path / "file"), pytest.raises(StoreLockedError), changing(tmp_path / "file"):
        pass
    with changing(tmp_path / "file"):
        replace_whole(tmp_path / "file", b"new")

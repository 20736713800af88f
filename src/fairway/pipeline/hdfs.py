"""HDFS as a file system of Arrow, through a client of its protocol, so that the machine needs no Hadoop.

The client is hdfs-native, the extra ``[hdfs]``. It reads the configuration of Hadoop (``HADOOP_CONF_DIR``) if one
exists. The user is from ``HADOOP_USER_NAME`` or from Kerberos. Arrow's own HDFS needs ``libhdfs``, a JVM and Hadoop's
classes in every process.

A rename here replaces an existing file in one step; HDFS supports it, but Arrow does not request it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyarrow.fs import FileInfo, FileSystem, FSSpecHandler, PyFileSystem

from fairway.errors import ConfigurationError
from fairway.extras import needing

if TYPE_CHECKING:
    from hdfs_native.fsspec import HdfsFileSystem

HDFS: Final = "hdfs"
"""Arrow's name for the type of these file systems."""
_NS_PER_MS: Final = 1_000_000


def hdfs_of(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI such as ``hdfs://namenode:8020/run`` or ``viewfs:///run``, and the path on it.

    Raises `MissingExtraError` without hdfs-native, `ConfigurationError` for a URI with a user or options, and the
    errors of the client for an invalid configuration.
    """
    parts = urlsplit(uri)
    if parts.username or parts.query:
        raise ConfigurationError(
            f"{parts.scheme}://{parts.hostname or ''}{parts.path} has a user or options: set HADOOP_USER_NAME, and "
            "options in the configuration of Hadoop"
        )
    client = _client(parts.scheme, parts.hostname, parts.port, os.getpid())
    return PyFileSystem(_Handler(client)), parts.path or "/"


@cache
def _client(scheme: str, host: str | None, port: int | None, _process: int) -> HdfsFileSystem:
    """Return the client of a name node; the cache keeps it for the life of this process.

    Without this cache only the cache of fsspec holds the client, and a forked process clears that. The destructor of
    the client then waits for threads that do not exist after a fork, so that the start of Spark, which forks, hangs.
    """
    with needing("hdfs", "HDFS"):
        from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem  # noqa: PLC0415 - needs the [hdfs] extra
    kind = HdfsFileSystem if scheme == HDFS else ViewfsFileSystem
    return kind(host=host, port=port)


class _Handler(FSSpecHandler):  # type: ignore[misc] # pyarrow has no types
    """The client behind Arrow's interface."""

    def get_type_name(self) -> str:
        """Return the name for `FileSystem.type_name`."""
        return HDFS

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> FileInfo:
        found = FSSpecHandler._create_file_info(path, info)  # noqa: SLF001 - what it leaves out is the time
        time_ns = info["modification_time"] * _NS_PER_MS
        return FileInfo(path, found.type, size=found.size, mtime_ns=time_ns)

    def move(self, src: str, dest: str) -> None:
        """Rename a file in one step; replace an existing one."""
        self.fs.mv(src, dest, overwrite=True)

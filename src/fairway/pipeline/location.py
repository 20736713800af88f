"""`Location`: a folder or a file on a file system of Arrow: local disks, S3, HDFS, Google's and Azure's stores.

::

    run                                                       a path on this machine, also as file:///shared/run
    s3://bucket/run                                           AWS_ENDPOINT_URL, AWS_REGION and keys from the environment
    s3://KEY:SECRET@bucket/run?endpoint_override=HOST:PORT&scheme=http&region=eu-west-1
    hdfs://namenode:8020/run                                  with the extra [hdfs]
    gs://bucket/run, abfss://container@account.dfs.core.windows.net/run

The options behind ``?`` are those of `pyarrow.fs.FileSystem.from_uri`. ``s3a`` and ``s3n`` are Hadoop's names for S3.

Invariants: a URI is never used as a path (`pathlib` makes ``s3a:/bucket/run`` out of ``s3a://bucket/run``, which names
a folder on the local disk). `Location.put` replaces a file in one step: a reader sees the old or the new content. No
other operation is atomic on every file system: object stores rename by copying.
"""

from __future__ import annotations

import errno
import posixpath
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import NativeFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from fairway.errors import ConfigurationError, FairwayError, StorageError, StoreFullError
from fairway.pipeline.azure import azure_of
from fairway.pipeline.hdfs import HDFS, hdfs_of
from fairway.storage.whole_file import replace_whole

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a full disk, quota or file."""
_FILE: Final = "file"
_ARROW_NAMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
"""Schemes, and Arrow's names for them."""
SCHEMES: Final = (_FILE, *_ARROW_NAMES)
"""The schemes of a `Location`."""
_OF_HADOOP: Final = frozenset({"hdfs", "viewfs"})
"""Schemes of Hadoop's file systems, which Spark always supports. Their URIs may have no host, such as ``hdfs:///run``:
then the configuration of Hadoop names it."""
_AZURE: Final = frozenset({"abfs", "abfss"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""At least two letters, so that a drive letter is a path."""
_ONE_REQUEST: Final = "allow_delayed_open=true"
"""Option of S3 that writes a small file with one request instead of three."""
_OF_URIS: Final = "%:/?#[]@!$&'()*+,;="
"""Characters of a URI beside letters and digits; others, such as a blank, are escaped."""
_IN_PYTHON: Final = "py::"
"""Arrow's prefix of the type names of file systems made in Python."""
_CLIENTS: Final = {**dict.fromkeys(_OF_HADOOP, hdfs_of), **dict.fromkeys(_AZURE, azure_of)}
"""By scheme: the function that makes the file system of a URI, if it is not Arrow's own."""
_FOLDERS_FIRST: Final = frozenset({"local", HDFS, "mock", "subtree"})
_HIDES_FOLDERS: Final = "gcs"
"""The type whose listings omit subfolders that have no object of their own."""
_NOT_THERE: Final = FileType.NotFound


def has_folders(filesystem: FileSystem) -> bool:
    """Return whether a folder must be created before its files; object stores only have names."""
    return filesystem.type_name.removeprefix(_IN_PYTHON) in _FOLDERS_FIRST


def uri_of(place: str | PathLike[str]) -> str:
    """Return a place as text, with the slashes restored that a `Path` removes from a URI."""
    given = fspath(place)
    scheme = scheme_of(given)
    if scheme is None or scheme == _FILE or given[len(scheme) :].startswith("://"):
        return given
    slashes = ":///" if scheme in _OF_HADOOP else "://"
    return scheme + slashes + given[len(scheme) + 2 :]


def scheme_of(place: str | PathLike[str]) -> str | None:
    """Return the scheme of a URI, in lower case; None for a path, which may have a colon without a slash after it."""
    match = _SCHEME.match(fspath(place))
    return None if match is None else match[1].lower()


def is_on_this_machine(place: str | PathLike[str]) -> bool:
    """Return whether a place is a path, or a URI like ``file:///shared/run``."""
    return scheme_of(place) in {None, _FILE}


def local_path(place: str | PathLike[str], use: str) -> Path:
    """Return the path of a place that must be on this machine: a path, or a URI like ``file:///shared/run``.

    ``use`` names the argument in errors, such as ``--out``. Raises `ConfigurationError` for an empty text, for a URI of
    another scheme, or a ``file:`` URI that names another machine.
    """
    given = uri_of(place)
    scheme = scheme_of(given)
    if scheme is None:
        if not given:  # pathlib reads it as the current folder; more likely it is an unset variable of a shell
            raise ConfigurationError(f"{use} is empty: give a path, or '.' for the current folder")
        return Path(given)
    if scheme != _FILE:
        raise ConfigurationError(
            f"{use} is {without_secrets(given)!r}, and the scheme {scheme!r} is not supported there: give a path on "
            "this machine, or file:///PATH"
        )
    parts = urlsplit(given)
    if parts.netloc not in {"", "localhost"}:
        raise ConfigurationError(f"{use} is {given!r}, a file of the machine {parts.netloc!r}: write file:///PATH")
    return Path(unquote(parts.path))


def uri_within(place: str | PathLike[str], name: str) -> str:
    """Return the path or the URI of a name, or of several with slashes between them, in a folder; options stay."""
    given = uri_of(place)
    if scheme_of(given) is None:
        return str(Path(given) / name)
    parts = urlsplit(given)
    return urlunsplit(parts._replace(path=posixpath.join(parts.path or "/", name)))


def without_secrets(uri: str) -> str:
    """Return a URI without user, password, query and fragment, which may hold secrets; a path as it is."""
    if not uri.startswith("//") and "://" not in uri:
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "..."
    user, at, host = parts.netloc.rpartition("@")
    if parts.scheme in _AZURE:  # the user part of the URI is the container
        host = user.partition(":")[0] + at + host
    if not host and uri.startswith(f"{parts.scheme}://"):
        return f"{parts.scheme}://{parts.path}"  # urlunsplit leaves out the slashes
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or a file, which need not exist. It can be pickled for tasks."""

    filesystem: FileSystem = field(repr=False)
    path: str
    """Its path on ``filesystem``."""
    shown: str
    """The path, or the URI without secrets, for output."""
    uri: str = field(default="", repr=False)
    """The path, or the URI with its secrets, for other clients."""

    @classmethod
    def of(cls, place: str | PathLike[str], use: str) -> Self:
        """Return the location of a path or a URI; ``use`` names the argument in errors, such as ``--out``.

        Raises `ConfigurationError` for an unsupported scheme, an invalid URI, or an unavailable file system, such as
        for wrong options or a missing bucket. Raises `MissingExtraError` for HDFS without the extra.
        """
        given = uri_of(place)
        scheme = scheme_of(given)
        if scheme is None or scheme == _FILE:
            here = local_path(given, use)
            return cls(LocalFileSystem(), str(here.absolute()), str(here), str(here))
        shown = without_secrets(given)
        name = _ARROW_NAMES.get(scheme)
        if name is None:
            raise ConfigurationError(
                f"{use} is {shown!r}, and the scheme {scheme!r} is not supported: give a path, or a URI of one of "
                f"{', '.join(SCHEMES)}"
            )
        uri = f"{name}{given[len(scheme) :]}"
        if name == "s3" and _ONE_REQUEST.partition("=")[0] not in uri:
            uri += f"{'&' if '?' in uri else '?'}{_ONE_REQUEST}"
        try:
            client = _CLIENTS.get(name)
            filesystem, path = client(uri) if client else FileSystem.from_uri(quote(uri, safe=_OF_URIS))
        except FairwayError:
            raise
        except (OSError, pa.ArrowException, ValueError, RuntimeError) as error:
            told = str(error).partition("\n")[0]
            raise ConfigurationError(
                f"{use} is {shown!r}, which cannot be used: {told}; see that the place is there, and that "
                "its options and keys are right"
            ) from error
        return cls(filesystem, path.rstrip("/"), shown.rstrip("/"), given)

    def __str__(self) -> str:
        return self.shown

    def __truediv__(self, name: str) -> Self:
        """Return the location of a name, or of several with slashes between them, in this folder."""
        return replace(
            self,
            path=posixpath.join(self.path, name),
            shown=posixpath.join(self.shown, name),
            uri=uri_within(self.uri, name),
        )

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return posixpath.basename(self.path)

    @property
    def is_local(self) -> bool:
        """Return whether it is on a local or mounted disk of this machine."""
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def local(self) -> Path:
        """Return the path of a local location."""
        assert self.is_local, f"{self.shown} is not on this machine"
        return Path(self.path)

    def info(self) -> FileInfo:
        """Return its type (`FileType.NotFound` if it does not exist), size and modification time."""
        with self._named_errors():
            return self.filesystem.get_file_info(self.path)

    def is_dir(self) -> bool:
        """Return whether it is a folder; in an object store, whether it has objects."""
        return bool(self.info().type == FileType.Directory)

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return bool(self.info().type == FileType.File)

    def refuse_missing_bucket(self) -> None:
        """Raise `ConfigurationError` if its bucket or container does not exist.

        Call it only after another operation failed: keys for a bucket may not permit a query for the bucket itself.
        """
        if has_folders(self.filesystem):
            return
        bucket = self.path.partition("/")[0]
        with suppress(OSError):
            if self.filesystem.get_file_info(bucket).type == _NOT_THERE:
                uri = urlunsplit(urlsplit(self.shown)._replace(path=""))
                raise ConfigurationError(
                    f"{uri}: there is no bucket {bucket!r}, or it is not shown to these keys: make it, or give another"
                )

    def files(self, *, recursive: bool = False) -> list[FileInfo]:
        """Return the files in a folder, sorted by path, with path, size and time; none if the folder is missing."""
        return [found for found in self.children(recursive=recursive) if found.type == FileType.File]

    def children(self, *, recursive: bool = False) -> list[FileInfo]:
        """Return the files and folders in a folder, sorted by path; none if the folder is missing."""
        hides_folders = self.filesystem.type_name == _HIDES_FOLDERS
        with self._named_errors():
            selector = FileSelector(self.path, recursive=recursive or hides_folders, allow_not_found=True)
            found = self.filesystem.get_file_info(selector)
        # An object store may hold an object for a folder, and lists it in the folder.
        inside = [one for one in found if one.path.rstrip("/") != self.path]
        if hides_folders and not recursive:
            folders = {self.beneath(one).partition("/")[0] for one in inside if "/" in self.beneath(one)}
            inside = [one for one in inside if "/" not in self.beneath(one) and self.beneath(one) not in folders]
            inside += [FileInfo(posixpath.join(self.path, name), FileType.Directory) for name in folders]
        return sorted(inside, key=lambda one: str(one.path))

    def beneath(self, found: FileInfo) -> str:
        """Return the path of a result of `children`, relative to this folder."""
        return posixpath.relpath(found.path, self.path)

    def read(self) -> bytes:
        """Return the content of a file; raise `FileNotFoundError` if it is missing, and `OSError` if unreadable."""
        with self.filesystem.open_input_file(self.path) as file:
            return bytes(file.read())

    def put(self, content: bytes) -> None:
        """Create or replace a file in one step, durably; the folder must exist if the file system has folders."""
        if self.is_local:
            replace_whole(self.local, content)
        elif has_folders(self.filesystem):
            # Readers see an open file, so the content is first in another, which a killed process may leave behind.
            draft = posixpath.join(posixpath.dirname(self.path), f".{self.name}.new")
            with self._named_errors():
                with self.filesystem.open_output_stream(draft) as file:
                    file.write(content)
                self.filesystem.move(draft, self.path)
        else:
            with self.opened() as file:
                file.write(content)

    @contextmanager
    def opened(self) -> Iterator[NativeFile]:
        """Open a file for writing from its beginning; in an object store it appears at the end of the block.

        The folder must exist if the file system has folders.
        """
        with self._named_errors(), self.filesystem.open_output_stream(self.path) as file:
            yield file

    def make_folder(self) -> None:
        """Create a missing folder with its parents, if the file system has folders."""
        if has_folders(self.filesystem):
            with self._named_errors():
                self.filesystem.create_dir(self.path, recursive=True)

    @contextmanager
    def being_written(self, then: str) -> Iterator[None]:
        """Raise an `OSError` of a write as a `StorageError`, whose text ends with ``then``, the remedy."""
        try:
            yield
        except OSError as error:
            if error.errno in NO_ROOM:
                raise StoreFullError(f"no room is left for {self}: make some; {then}") from error
            raise StorageError(
                f"{self} cannot be written ({error}): give another place, or remove the cause; {then}"
            ) from error

    def remove(self) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        if self.is_local:
            if self.local.is_file():
                self.local.unlink(missing_ok=True)
            else:
                shutil.rmtree(self.local, ignore_errors=True)
            return
        with self._named_errors():
            kind = self.filesystem.get_file_info(self.path).type
            try:
                if kind == FileType.Directory:
                    self.filesystem.delete_dir(self.path)
                elif kind != _NOT_THERE:
                    self.filesystem.delete_file(self.path)
            except FileNotFoundError:
                return  # another process removed it

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Raise an `OSError` of a remote file system as a `StorageError`; leave one of this machine unchanged."""
        try:
            yield
        except OSError as error:
            if self.is_local:
                raise
            self.refuse_missing_bucket()
            raise StorageError(f"{self.shown} cannot be used: {error}") from error

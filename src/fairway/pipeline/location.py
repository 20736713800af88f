"""`Location`: a folder or a file on a file system that Arrow knows: local disks, S3, HDFS, Google's and Azure's stores.

::

    run                                                       a path on this machine; file:///shared/run is one as well
    s3://bucket/run                                           AWS_ENDPOINT_URL, AWS_REGION and keys from the environment
    s3://KEY:SECRET@bucket/run?endpoint_override=HOST:PORT&scheme=http&region=eu-west-1
    hdfs://namenode:8020/run                                  with the extra [hdfs]
    gs://bucket/run, abfss://container@account.dfs.core.windows.net/run

The options behind ``?`` are those of `pyarrow.fs.FileSystem.from_uri`. ``s3a`` and ``s3n`` are Hadoop's names for S3.

Invariants: a URI is never taken for a path (`pathlib` makes ``s3a:/bucket/run`` out of ``s3a://bucket/run``, and a
folder of that name would be created on the local disk); and `Location.put` replaces a file in one step: a reader finds
the old content or the new one. Nothing else is in one step on every file system: object stores rename by copying.
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
"""What an `OSError` says where a disk, or the part of it that a user may have, is full."""
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
"""Schemes of file systems that every Spark knows, and Arrow if Hadoop is on the machine. Their URIs may have no host,
such as ``hdfs:///run``: then the configuration of Hadoop names it."""
_AZURE: Final = frozenset({"abfs", "abfss"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""At least two letters, so that a drive letter is a path."""
_ONE_REQUEST: Final = "allow_delayed_open=true"
"""Lets S3 take a small file in one request, and not in three."""
_OF_URIS: Final = "%:/?#[]@!$&'()*+,;="
"""Characters of a URI beside letters and digits; others, such as a blank, people write as they are."""
_IN_PYTHON: Final = "py::"
"""What Arrow puts before the names of file systems that are made in Python."""
_CLIENTS: Final = {**dict.fromkeys(_OF_HADOOP, hdfs_of), **dict.fromkeys(_AZURE, azure_of)}
"""By scheme: who makes the file system of a URI, where Arrow does not."""
_FOLDERS_FIRST: Final = frozenset({"local", HDFS, "mock", "subtree"})
_HIDES_FOLDERS: Final = "gcs"
"""The type whose lists of a folder leave out folders in it, unless an object was made for these."""
_NOT_THERE: Final = FileType.NotFound


def has_folders(filesystem: FileSystem) -> bool:
    """Return whether a folder must be made before there can be files in it; object stores only have names."""
    return filesystem.type_name.removeprefix(_IN_PYTHON) in _FOLDERS_FIRST


def uri_of(place: str | PathLike[str]) -> str:
    """Return a place as it was given: a `Path` that was made of a URI has lost a slash or two."""
    given = fspath(place)
    scheme = scheme_of(given)
    if scheme is None or scheme == _FILE or given[len(scheme) :].startswith("://"):
        return given
    slashes = ":///" if scheme in _OF_HADOOP else "://"
    return scheme + slashes + given[len(scheme) + 2 :]


def scheme_of(place: str | PathLike[str]) -> str | None:
    """Return the scheme of a URI, in lower case; None for a path, which may have colons that no slash follows."""
    match = _SCHEME.match(fspath(place))
    return None if match is None else match[1].lower()


def is_on_this_machine(place: str | PathLike[str]) -> bool:
    """Return whether a place is a path, or a URI like ``file:///shared/run``."""
    return scheme_of(place) in {None, _FILE}


def is_in_hadoop(scheme: str) -> bool:
    """Return whether a scheme is one of Hadoop's file systems."""
    return scheme in _OF_HADOOP


def is_in_object_store(place: str | PathLike[str]) -> bool:
    """Return whether a place is a URI of an object store that a `Location` can be in."""
    return scheme_of(place) in _ARROW_NAMES.keys() - _OF_HADOOP


def local_path(place: str | PathLike[str], use: str) -> Path:
    """Return the path of what must be on this machine: a path, or a URI like ``file:///shared/run``.

    ``use`` names the argument in errors, such as ``--out``. Raises `ConfigurationError` for an empty text, for a URI of
    another scheme, or a ``file:`` URI that names another machine.
    """
    given = uri_of(place)
    scheme = scheme_of(given)
    if scheme is None:
        if not given:  # pathlib takes it as the current folder; it is rather a variable of a shell that is not set
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
    if parts.scheme in _AZURE:  # what stands where others have the user is the container
        host = user.partition(":")[0] + at + host
    if not host and uri.startswith(f"{parts.scheme}://"):
        return f"{parts.scheme}://{parts.path}"  # urlunsplit leaves out the slashes
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or a file, which need not be there. It can be pickled, so that tasks can have it."""

    filesystem: FileSystem = field(repr=False)
    path: str
    """Its path on ``filesystem``."""
    shown: str
    """What people are shown: a path, or the URI without secrets."""
    uri: str = field(default="", repr=False)
    """The path, or the URI with its secrets, by which other clients find it."""

    @classmethod
    def of(cls, place: str | PathLike[str], use: str) -> Self:
        """Return the location of a path or a URI; ``use`` names the argument in errors, such as ``--out``.

        Raises `ConfigurationError` for a scheme that is not supported, and for a URI that Arrow does not understand or
        whose file system cannot be had: wrong options, no such bucket. Raises `MissingExtraError` for HDFS without
        the extra.
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
        """Return whether it is on a disk of this machine, or on one that looks so."""
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def local(self) -> Path:
        """Return the path of a local one."""
        assert self.is_local, f"{self.shown} is not on this machine"
        return Path(self.path)

    @property
    def draft(self) -> Self:
        """Return where `put` writes a file of a file system with folders first. A process that is killed leaves it."""
        name = f".{self.name}.new"
        return replace(
            self,
            path=posixpath.join(posixpath.dirname(self.path), name),
            shown=posixpath.join(posixpath.dirname(self.shown), name),
        )

    def info(self) -> FileInfo:
        """Return what the file system says of it: type (`FileType.NotFound` if it is not there), size and time."""
        with self._named_errors():
            return self.filesystem.get_file_info(self.path)

    def is_dir(self) -> bool:
        """Return whether it is a folder; in an object store, whether something is in it."""
        return bool(self.info().type == FileType.Directory)

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return bool(self.info().type == FileType.File)

    def refuse_missing_bucket(self) -> None:
        """Raise `ConfigurationError` if it is in a bucket, or a container, that is not there.

        Ask only when something is missing already: who may use a bucket need not be allowed to ask for it.
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
        """Return the files in a folder, sorted by path, each with path, size and time; none if it is not there."""
        return [found for found in self.children(recursive=recursive) if found.type == FileType.File]

    def children(self, *, recursive: bool = False) -> list[FileInfo]:
        """Return the files and folders in a folder, sorted by path; none if it is not there."""
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
        """Return the path of what `children` found, from here."""
        return posixpath.relpath(found.path, self.path)

    def read(self) -> bytes:
        """Return the content of a file; raise `FileNotFoundError` if it is not there, and `OSError` if unreadable."""
        with self.filesystem.open_input_file(self.path) as file:
            return bytes(file.read())

    def put(self, content: bytes) -> None:
        """Create or replace a file in one step, durably; the folder must be there if the file system has folders."""
        if self.is_local:
            replace_whole(self.local, content)
        elif has_folders(self.filesystem):
            # Others would see the file while it is written.
            draft = self.draft
            with draft.opened() as file:
                file.write(content)
            with self._named_errors():
                self.filesystem.move(draft.path, self.path)
        else:
            with self.opened() as file:
                file.write(content)

    @contextmanager
    def opened(self) -> Iterator[NativeFile]:
        """Open a file to write it from its beginning; in an object store it is there when the block ends, not before.

        The folder must be there if the file system has folders.
        """
        with self._named_errors(), self.filesystem.open_output_stream(self.path) as file:
            yield file

    def make_folder(self) -> None:
        """Create a folder, and those that it is in, if the file system has folders and it is missing."""
        if has_folders(self.filesystem):
            with self._named_errors():
                self.filesystem.create_dir(self.path, recursive=True)

    @contextmanager
    def being_written(self, then: str) -> Iterator[None]:
        """Raise what keeps a program from writing here as a `StorageError`, which ends with ``then``: what to do."""
        try:
            yield
        except OSError as error:
            if error.errno in NO_ROOM:
                raise StoreFullError(f"no room is left for {self}: make some; {then}") from error
            raise StorageError(
                f"{self} cannot be written ({error}): give another place, or mend that; {then}"
            ) from error

    def remove(self) -> None:
        """Remove a file or a folder with all that is in it; it need not be there."""
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
                return  # somebody else was faster

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Raise what goes wrong elsewhere as a `StorageError`; on this machine as the `OSError` that it is."""
        try:
            yield
        except OSError as error:
            if self.is_local:
                raise
            self.refuse_missing_bucket()
            raise StorageError(f"{self.shown} cannot be used: {error}") from error

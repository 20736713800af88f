"""Lists of nodes in DNS: the texts of their entries, and what makes each of them trustworthy (EIP-1459).

Pure. A list is a tree: a root that the list's key signed, and below it branches, node records, and links to other
lists, each under the hash of its own text. So with the key of the URL every text can be checked by itself, and a name
server can withhold entries but not forge one.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode, urlsafe_b64decode
from dataclasses import dataclass
from typing import Final, TypeAlias

from fairway.nodes.discovery.errors import ListFault, NodeListError
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.discovery.signatures import has_signed, point_of
from fairway.wire.hashing import keccak256

MAX_ENTRY_CHARACTERS: Final = 4096
"""Longer texts are not read; "the content of any TXT record should be small enough to fit into 512 bytes"."""

_SCHEME: Final = "enrtree://"
_BRANCH: Final = "enrtree-branch:"
_RECORD: Final = "enr:"
_URL: Final = re.compile(r"enrtree://([A-Z2-7]{53})@([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)", re.IGNORECASE | re.ASCII)
_HASH: Final = re.compile(r"[A-Z2-7]{20,52}", re.ASCII)
"""Base32 of 12 to 32 bytes: other implementations read no hash that is shorter."""
_ROOT: Final = re.compile(
    r"(enrtree-root:v1 e=([A-Z2-7]{20,52}) l=([A-Z2-7]{20,52}) seq=([0-9]{1,18})) sig=([\w-]{87})", re.ASCII
)
_MAX_DOMAIN: Final = 200
"""Longest domain of a list: a hash and a dot must fit before it."""


@dataclass(frozen=True, slots=True)
class NodeListUrl:
    """Where a list is, and whose it is. Raises `NodeListError` for a key that is none."""

    public_key: bytes
    """Key that signs the root, compressed, 33 bytes."""
    domain: str
    """Domain name with the root, in lower case."""

    @classmethod
    def parse(cls, text: str) -> NodeListUrl:
        """Read "enrtree://KEY@DOMAIN", or raise `NodeListError`."""
        match = _URL.fullmatch(text) if len(text) <= MAX_ENTRY_CHARACTERS else None
        if match is None or len(match[2]) > _MAX_DOMAIN:
            raise NodeListError(ListFault.URL, f"{text[:100]!r}; one looks like enrtree://KEY@nodes.example.org")
        key = b32decode(match[1].upper() + "===")
        try:
            point_of(key)
        except ValueError as error:
            raise NodeListError(ListFault.URL, f"{text[:100]!r} has no public key: {error}") from error
        return cls(key, match[2].lower())

    def __str__(self) -> str:
        return f"{_SCHEME}{b32encode(self.public_key).decode().rstrip('=')}@{self.domain}"


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a list, whose signature was verified."""

    records: str
    """Hash of the tree of node records."""
    links: str
    """Hash of the tree of links."""
    sequence: int
    """Larger in each newer version of the list."""


@dataclass(frozen=True, slots=True)
class Branch:
    """An entry that names others."""

    hashes: tuple[str, ...]


Entry: TypeAlias = Branch | NodeRecord | NodeListUrl


def read_root(text: str, url: NodeListUrl) -> Root:
    """Return the root of the list at ``url``, or raise `NodeListError`."""
    match = _ROOT.fullmatch(text)
    if match is None:
        raise NodeListError(ListFault.ENTRY, f"{text[:100]!r} is no root")
    # The last of the 65 bytes helps to recover the key, which is known here.
    signature = urlsafe_b64decode(match[5] + "=")[:64]
    if not has_signed(point_of(url.public_key), signature, match[1].encode()):
        raise NodeListError(ListFault.SIGNATURE, f"the key in {url} did not sign the root at {url.domain}")
    return Root(match[2], match[3], int(match[4]))


def read_entry(text: str, name: str) -> Entry:
    """Return the entry under a hash, or raise `NodeListError`; for a wrong node record, `NodeRecordError`."""
    if len(text) > MAX_ENTRY_CHARACTERS:
        raise NodeListError(ListFault.ENTRY, f"{len(text)} characters")
    if not _HASH.fullmatch(name) or hash_of(text, len(name) * 5 // 8) != name:
        raise NodeListError(ListFault.HASH, f"{text[:60]!r} stands under {name[:60]!r}")
    if text.startswith(_RECORD):
        return NodeRecord.parse(text)
    if text.startswith(_SCHEME):
        return NodeListUrl.parse(text)
    if text.startswith(_BRANCH):
        hashes = tuple(part for part in text.removeprefix(_BRANCH).split(",") if part)
        if all(map(_HASH.fullmatch, hashes)):
            return Branch(hashes)
    raise NodeListError(ListFault.ENTRY, f"{text[:100]!r} is no entry of a list")


def hash_of(text: str, size_bytes: int = 16) -> str:
    """Return the name of an entry: the first bytes of the hash of its text, in base32."""
    return b32encode(keccak256(text.encode())[:size_bytes]).decode().rstrip("=")

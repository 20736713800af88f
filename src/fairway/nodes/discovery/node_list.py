"""Lists of nodes in DNS (EIP-1459): `read_root` and `read_entry` check entries, `NodeListReader` walks lists.

A list is a tree. The list's key signs its root. Below the root are branches, node records, and links to other lists,
each under the hash of its own text. So the key of the URL suffices to check every text: a name server can withhold
entries but not forge one.

Invariant: every read ends. No entry and no list is read twice. A read makes at most `MAX_LOOKUPS` look-ups in at most
`MAX_LISTS` lists, even if the signed chains are longer. A wrong entry costs its own subtree only, and is counted by its
fault.
"""

from __future__ import annotations

import logging
import random
import re
from base64 import b32decode, b32encode, urlsafe_b64decode
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from fairway.errors import DecodeError, NetworkError
from fairway.nodes.discovery.node_record import NodeRecord, NodeRecordError
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


class NodeListError(DecodeError):
    """An entry of a node list in DNS that is not valid."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(f"a node list with a wrong {fault}: {detail}")
        self.fault = fault
        """The fault in a word, for counters."""


class NameServerError(NetworkError):
    """The DNS did not answer, or has no such name; the text names the queried name servers."""


@dataclass(frozen=True, slots=True)
class NodeListUrl:
    """The domain and the key of a list. Raises `NodeListError` for an invalid key."""

    public_key: bytes
    """Key that signs the root, compressed, 33 bytes."""
    domain: str
    """Domain name with the root, in lower case."""

    @classmethod
    def parse(cls, text: str) -> NodeListUrl:
        """Read "enrtree://KEY@DOMAIN", or raise `NodeListError`."""
        match = _URL.fullmatch(text) if len(text) <= MAX_ENTRY_CHARACTERS else None
        if match is None or len(match[2]) > _MAX_DOMAIN:
            raise NodeListError("URL", f"{text[:100]!r}; one looks like enrtree://KEY@nodes.example.org")
        key = b32decode(match[1].upper() + "===")
        try:
            point_of(key)
        except ValueError as error:
            raise NodeListError("URL", f"{text[:100]!r} has no public key: {error}") from error
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
    """An entry that names other entries."""

    hashes: tuple[str, ...]


Entry: TypeAlias = Branch | NodeRecord | NodeListUrl


def read_root(text: str, url: NodeListUrl) -> Root:
    """Return the root of the list at ``url``, or raise `NodeListError`."""
    match = _ROOT.fullmatch(text)
    if match is None:
        raise NodeListError("entry", f"{text[:100]!r} is no root")
    # The last of the 65 bytes helps to recover the key, which is known here.
    signature = urlsafe_b64decode(match[5] + "=")[:64]
    if not has_signed(point_of(url.public_key), signature, match[1].encode()):
        raise NodeListError("signature", f"the key in {url} did not sign the root at {url.domain}")
    return Root(match[2], match[3], int(match[4]))


def read_entry(text: str, name: str) -> Entry:
    """Return the entry under a hash, or raise `NodeListError`; for a wrong node record, `NodeRecordError`."""
    if len(text) > MAX_ENTRY_CHARACTERS:
        raise NodeListError("entry", f"{len(text)} characters")
    if not _HASH.fullmatch(name) or hash_of(text, len(name) * 5 // 8) != name:
        raise NodeListError("hash", f"{text[:60]!r} stands under {name[:60]!r}")
    if text.startswith(_RECORD):
        return NodeRecord.parse(text)
    if text.startswith(_SCHEME):
        return NodeListUrl.parse(text)
    if text.startswith(_BRANCH):
        hashes = tuple(part for part in text.removeprefix(_BRANCH).split(",") if part)
        if all(map(_HASH.fullmatch, hashes)):
            return Branch(hashes)
    raise NodeListError("entry", f"{text[:100]!r} is no entry of a list")


def hash_of(text: str, size_bytes: int = 16) -> str:
    """Return the name of an entry: the first bytes of the hash of its text, in base32."""
    return b32encode(keccak256(text.encode())[:size_bytes]).decode().rstrip("=")


MAX_LOOKUPS: Final = 1_000
"""Look-ups of one read."""
MAX_LISTS: Final = 16
"""Lists of one read, the first one included."""

_LOG: Final = logging.getLogger(__name__)
_ROOT_PREFIX: Final = "enrtree-root:"

_Leaf = TypeVar("_Leaf", NodeRecord, NodeListUrl)

Texts = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns the texts of a DNS name, or raises `NameServerError`."""


class NodeListReader:
    """Reads lists, and keeps the newest version number of each."""

    def __init__(self, texts: Texts, *, rng: random.Random, sequences: dict[str, int] | None = None) -> None:
        self.sequences: Final[dict[str, int]] = {} if sequences is None else sequences
        """Sequence number of the newest root seen, by domain; an older root is refused."""
        self.faults: Final[Counter[str]] = Counter()
        """Number of skipped entries, by reason; "name server" if no server answered."""
        self._texts: Final = texts
        self._rng: Final = rng

    async def read(self, url: NodeListUrl) -> AsyncIterator[NodeRecord]:
        """Yield the records of a list and of those that it links to, in random order, each once.

        Records are looked up only as the caller asks for them. Raises `NameServerError` or `NodeListError` if the root
        of the list itself cannot be read; faults further down are counted.
        """
        walk = _Walk(self._texts)
        lists, domains = deque([url]), {url.domain}
        while lists and not walk.exhausted:
            here = lists.popleft()
            try:
                root = await self._root(walk, here)
            except (NameServerError, NodeListError) as error:
                self._count(error)
                if here is url:
                    raise
                continue
            async for record in self._below(walk, here.domain, root.records, NodeRecord):
                yield record
            async for link in self._below(walk, here.domain, root.links, NodeListUrl):
                if link.domain not in domains and len(domains) < MAX_LISTS:
                    domains.add(link.domain)
                    lists.append(link)

    async def _root(self, walk: _Walk, url: NodeListUrl) -> Root:
        texts = [text for text in await walk.texts(url.domain) if text.startswith(_ROOT_PREFIX)]
        if not texts:
            raise NodeListError("entry", f"there is no root at {url.domain}")
        root = read_root(texts[0], url)
        seen = self.sequences.get(url.domain, 0)
        if root.sequence < seen:
            raise NodeListError("sequence", f"version {root.sequence} at {url.domain}, after version {seen} was seen")
        self.sequences[url.domain] = root.sequence
        return root

    async def _below(self, walk: _Walk, domain: str, top: str, kind: type[_Leaf]) -> AsyncIterator[_Leaf]:
        """Yield the entries of one kind in a tree."""
        waiting = [top]
        while waiting and not walk.exhausted:
            name = waiting.pop(self._rng.randrange(len(waiting)))
            if not walk.enter(f"{name}.{domain}"):
                continue
            try:
                entry = read_entry("".join(await walk.texts(f"{name}.{domain}")), name)
            except (NameServerError, DecodeError) as error:
                self._count(error)
                continue
            if isinstance(entry, Branch):
                waiting += entry.hashes
            elif isinstance(entry, kind):
                yield entry
            else:
                self._count(NodeListError("entry", f"{type(entry).__name__} where {kind.__name__} belongs"))

    def _count(self, error: NameServerError | DecodeError) -> None:
        _LOG.debug("%s", error)
        reason = error.fault if isinstance(error, NodeListError | NodeRecordError) else "name server"
        self.faults[reason] += 1


class _Walk:
    """The names and lists that one read has visited."""

    def __init__(self, texts: Texts) -> None:
        self._texts: Final = texts
        self._seen: set[str] = set()
        self._lookups = 0

    @property
    def exhausted(self) -> bool:
        return self._lookups >= MAX_LOOKUPS

    def enter(self, name: str) -> bool:
        """Return whether a name is new."""
        new = name not in self._seen
        self._seen.add(name)
        return new

    async def texts(self, name: str) -> tuple[str, ...]:
        self._lookups += 1
        return await self._texts(name)

"""`NodeListReader`: walks lists of nodes in DNS, and hands out their valid records (EIP-1459, "Client Protocol").

Invariant: every read ends. No entry and no list is read twice, and a read makes at most `MAX_LOOKUPS` look-ups in at
most `MAX_LISTS` lists, however long the chains that somebody signs. A wrong entry costs its own subtree only; it is
counted by its fault.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from fairway.errors import DecodeError
from fairway.nodes.discovery.errors import ListFault, NameServerError, NodeListError, NodeRecordError
from fairway.nodes.discovery.node_list import Branch, NodeListUrl, Root, read_entry, read_root
from fairway.nodes.discovery.node_record import NodeRecord

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
    """Reads lists; remembers the newest version of each that it saw."""

    def __init__(self, texts: Texts, *, rng: random.Random, sequences: dict[str, int] | None = None) -> None:
        self.sequences: Final[dict[str, int]] = {} if sequences is None else sequences
        """Sequence number of the newest root seen, by domain; an older root is refused."""
        self.faults: Final[Counter[str]] = Counter()
        """Entries that were left out, by the reason; "name server" where there was none."""
        self._texts: Final = texts
        self._rng: Final = rng

    async def read(self, url: NodeListUrl) -> AsyncIterator[NodeRecord]:
        """Yield the records of a list and of those that it links to, in random order, each once.

        Ask for no more than is needed: the rest is not looked up. Raises `NameServerError` or `NodeListError` if
        the root of the list itself cannot be had; what is wrong further down is counted.
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
            raise NodeListError(ListFault.ENTRY, f"there is no root at {url.domain}")
        root = read_root(texts[0], url)
        seen = self.sequences.get(url.domain, 0)
        if root.sequence < seen:
            raise NodeListError(
                ListFault.SEQUENCE, f"version {root.sequence} at {url.domain}, after version {seen} was seen"
            )
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
                self._count(NodeListError(ListFault.ENTRY, f"{type(entry).__name__} where {kind.__name__} belongs"))

    def _count(self, error: NameServerError | DecodeError) -> None:
        _LOG.debug("%s", error)
        reason = error.fault.value if isinstance(error, NodeListError | NodeRecordError) else "name server"
        self.faults[reason] += 1


class _Walk:
    """What one read has looked at."""

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

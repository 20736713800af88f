"""`FaultyAnswers`: answers of a store as its faults make them: small pages, answers cut short, and false ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairway.nodes.local.faults import FaultDice
from fairway.nodes.local.lies import false_page
from fairway.nodes.message_store import MessageStore, Visible
from fairway.nodes.node import StorePage, StoreQuery


class FaultyAnswers:
    """Reads a store for askers; the dice decide what is wrong with an answer."""

    def __init__(self, store: MessageStore, dice: FaultDice) -> None:
        self._store: Final = store
        self._dice: Final = dice
        self._cut_short: set[tuple[str, bool, bool]] = set()
        """Askers whose last answer to a kind of query ended before its end: the next one does not."""
        self._led_back: set[tuple[str, bool, bool]] = set()
        """Askers whose last further page led back to itself: the next one does not."""

    def page(self, query: StoreQuery, cursor: bytes | None, visible: Visible, asker: str) -> tuple[StorePage, bool]:
        """Return a page of the answer, and whether it is false; raises `StoreQueryError`."""
        most = self._dice.faults.store_page
        if most is not None:
            query = replace(query, page_size=min(query.page_size, most))
        page = self._store.page(query, cursor, visible)
        kind = (asker, query.newest_first, bool(query.message_hashes))
        if kind not in self._cut_short and self._dice.is_cut():
            self._cut_short.add(kind)
            kept = len(page.messages) // 2
            messages = page.messages[len(page.messages) - kept :] if query.newest_first else page.messages[:kept]
            return StorePage(messages=messages), False
        self._cut_short.discard(kind)
        if cursor is not None and page.cursor is not None:
            if kind not in self._led_back and self._dice.is_circular():
                self._led_back.add(kind)
                return replace(page, cursor=cursor), False
            self._led_back.discard(kind)
        if not self._dice.is_false():
            return page, False
        newest = StoreQuery(newest_first=True)
        return false_page(
            page,
            query,
            cursor,
            anything=lambda: self._store.page(newest, None, visible).messages,
            dice=self._dice.random,
        ), True

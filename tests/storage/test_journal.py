"""A store gives the same answers from its journal as from its tables."""

from __future__ import annotations

import pytest

from fairway.errors import StoreCorruptError
from fairway.events import OrderKey, RequestSent
from fairway.storage.backup import back_up
from fairway.storage.channel_store import Handling, MessagePlace, OwnMessage, SendOutcome, TracePoint
from fairway.storage.memory_store import MemoryStore
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader

STEPS = ("receive", "send", "move", "finish", "fail", "ask", "end", "put", "remove", "note", "reopen", "compare")
PROGRAMS, LENGTH = 8, 120


class Program:
    """Keeps the same writes of a channel in a store in memory and in a file with other channels."""

    def __init__(self, file, name, make, keeper):
        self.path, self.name, self.make = file.path, name, make
        owner = (name, *make.owner[1:])
        self.stores = [keeper(MemoryStore(), owner), keeper(file.beside(), owner)]
        self.first_number = self.stores[1].stored.first_number
        self.places = {}
        self.received = set()
        self.points = []

    def do(self, step, each, key):
        number = self.first_number + each
        match step:
            case "receive" if number not in self.places:
                self.places[number] = key
                self.received.add(number)
                self.keep(delivered=((number, self.make.received(number, order_key=key)),))
            case "send" if number not in self.received:
                own = OwnMessage(request_id=f"r{number}", message_id="m", payload=b"own", accepted_at_ms=number)
                place = MessagePlace(number, 3, key, self.places.get(number))
                self.places[number] = key
                self.keep(sent=((number, own),), placed=(place,))
            case "move" if number in self.places:
                self.keep(placed=(MessagePlace(number, 3, key, self.places[number]),))
                self.places[number] = key
            case "finish":
                self.keep(finished=(number,))
            case "fail":
                self.keep(handling=(Handling(number=number, attempts=1),))
            case "ask":
                self.keep(requests=(self.make.request(each),))
            case "end":
                self.keep(requests=(self.make.request(each, outcome=SendOutcome.DELIVERED, ended_at_ms=number),))
            case "put":
                self.keep(changes=(self.make.put(str(each), number, (b"x", None)),))
            case "remove":
                self.keep(changes=(self.make.removed(str(each)),))
            case "note":
                event = RequestSent(request_id=f"request-{each}", message_id=f"message-{each}")
                self.points.append(TracePoint(at_ms=number, event=event))
                self.keep(trace=(self.points[-1],))
            case "reopen":
                self.reopen()
            case "compare":
                self.compare()

    def keep(self, **parts):
        for kept in self.stores:
            assert kept.keep(**parts) is None

    def compare(self):
        memory, file = (kept.store for kept in self.stores)
        reader = StoreReader(self.path, self.name)
        for before in (None, OrderKey(3, "b")):
            for limit in (1, 2, 100):
                assert file.history(before, limit) == memory.history(before, limit)
        for each in range(8):
            assert file.message(self.first_number + each) == memory.message(self.first_number + each)
            name = f"request-{each}"
            assert file.request(name) == reader.request(name) == memory.request(name)
            assert reader.requests(name) == [request for request in [memory.request(name)] if request is not None]
            points = [point for point in self.points if point.names(name)]
            assert reader.trace(name) == points

    def reopen(self):
        memory, file = (kept.reopen() for kept in self.stores)
        assert sorted(file.changes) == sorted(memory.changes)
        assert (file.inbox, file.handling) == (memory.inbox, memory.handling)


@pytest.mark.parametrize("merge_after_bytes", [1, 700, 1_000_000])
def test_each_channel_of_a_file_answers_as_a_store_in_memory_whenever_the_file_merges_its_journal(
    path, make, keeper, monkeypatch, rng, merge_after_bytes
):
    monkeypatch.setattr("fairway.storage.sqlite_writer.MERGE_AFTER_BYTES", merge_after_bytes)
    for each in range(PROGRAMS):
        file = SqliteStore(path.with_name(f"{each}.db"))
        programs = [Program(file, name, make, keeper) for name in ("one", "two", "three")]
        for _ in range(LENGTH):
            program = rng.choice(programs)
            program.do(rng.choice(STEPS), rng.randrange(8), OrderKey(rng.randrange(6), rng.choice("ab")))
        for program in programs:
            program.compare()
        for program in programs:
            program.reopen()


def test_a_damaged_row_of_the_journal_raises_an_error(path, make, keeper, tmp_path):
    kept, copy = keeper(SqliteStore(path)), tmp_path / "copy.db"
    kept.keep(requests=(make.request(1),))
    back_up(path, copy)
    copy.write_bytes(copy.read_bytes().replace(b"request-1", b"request-2"))
    for read in (lambda: SqliteStore(copy).open(*make.owner), lambda: StoreReader(copy).request("request-1")):
        with pytest.raises(StoreCorruptError, match="journal/1' is damaged"):
            read()

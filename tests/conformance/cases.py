"""Reading the cases of a known-answer file so that nothing in them is passed over.

A `Case` hands out the fields of a JSON object by type and remembers which were asked for. `replay_case` runs one
checker on one case and turns whatever goes wrong into a check that is not ok: a missing field, a field of another
type, an error of fairway. A field that no check reads is a failure as well, because its claim was not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sized
from dataclasses import replace
from typing import Any, Final, TypeVar

from tests.conformance.report import Check

from fairway.errors import DecodeError, FairwayError

_Value = TypeVar("_Value")
_LONGEST_SHOWN: Final = 72
"""Characters of a value that a detail shows."""


class MalformedCaseError(DecodeError):
    """A case of a known-answer file lacks a field, or a field has another type than its format says."""


class Case:
    """One JSON object of a known-answer file, read field by field.

    Accessors named ``maybe_...`` return None where the field is absent or null; the others raise
    `MalformedCaseError`. Integers may be JSON numbers or decimal strings, bytes are hex.
    """

    __slots__ = ("_children", "_fields", "_unread")

    def __init__(self, value: object) -> None:
        if not isinstance(value, Mapping):
            raise MalformedCaseError(f"expected an object, found {shown(value)}")
        self._fields: Mapping[str, Any] = value
        self._unread = dict.fromkeys(value)
        self._children: list[tuple[str, Case]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def __iter__(self) -> Iterator[str]:
        """Return the names of all fields, in the file's order."""
        return iter(self._fields)

    def unread(self) -> list[str]:
        """Return the fields, also of nested objects, that no check has read."""
        nested = [f"{key}.{name}" for key, child in self._children for name in child.unread()]
        return [*self._unread, *nested]

    def prose(self, *keys: str) -> None:
        """Mark fields that claim nothing about fairway as read."""
        for key in keys:
            self._unread.pop(key, None)

    def value(self, key: str) -> Any:
        """Return a field as it stands, null included."""
        if key not in self._fields:
            raise MalformedCaseError(f"the field {key!r} is missing")
        self._unread.pop(key, None)
        return self._fields[key]

    def _typed(self, key: str, convert: Callable[[Any], _Value], wanted: str) -> _Value:
        value = self.value(key)
        try:
            return convert(value)
        except (TypeError, ValueError) as error:
            raise MalformedCaseError(f"the field {key!r} should be {wanted}, not {shown(value)}") from error

    def _maybe(self, key: str, read: Callable[[str], _Value]) -> _Value | None:
        if self._fields.get(key) is None:
            self._unread.pop(key, None)
            return None
        return read(key)

    def text(self, key: str) -> str:
        """Return a string."""
        return self._typed(key, _text, "a string")

    def maybe_text(self, key: str) -> str | None:
        """Return a string, or None."""
        return self._maybe(key, self.text)

    def integer(self, key: str) -> int:
        """Return an integer."""
        return self._typed(key, _integer, "an integer")

    def maybe_integer(self, key: str) -> int | None:
        """Return an integer, or None."""
        return self._maybe(key, self.integer)

    def number(self, key: str) -> float:
        """Return a number, whole or not."""
        return self._typed(key, _number, "a number")

    def flag(self, key: str) -> bool:
        """Return true or false."""
        return self._typed(key, _flag, "true or false")

    def maybe_flag(self, key: str) -> bool | None:
        """Return true or false, or None."""
        return self._maybe(key, self.flag)

    def octets(self, key: str) -> bytes:
        """Return bytes written as hex."""
        return self._typed(key, _octets, "bytes in hex")

    def maybe_octets(self, key: str) -> bytes | None:
        """Return bytes written as hex, or None."""
        return self._maybe(key, self.octets)

    def items(self, key: str) -> list[Any]:
        """Return a list of anything."""
        return self._typed(key, _items, "a list")

    def texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        return self._typed(key, lambda value: [_text(item) for item in _items(value)], "a list of strings")

    def integers(self, key: str) -> list[int]:
        """Return a list of integers."""
        return self._typed(key, lambda value: [_integer(item) for item in _items(value)], "a list of integers")

    def octet_strings(self, key: str) -> list[bytes]:
        """Return a list of byte strings written as hex."""
        return self._typed(key, lambda value: [_octets(item) for item in _items(value)], "a list of bytes in hex")

    def child(self, key: str) -> Case:
        """Return a nested object, whose fields must be read as well."""
        value = self.value(key)
        try:
            child = Case(value)
        except MalformedCaseError as error:
            raise MalformedCaseError(f"the field {key!r}: {error}") from error
        self._children.append((key, child))
        return child

    def maybe_child(self, key: str) -> Case | None:
        """Return a nested object, or None."""
        return self._maybe(key, self.child)

    def children(self, key: str) -> list[Case]:
        """Return a list of nested objects, whose fields must be read as well."""
        children = [Case(item) for item in self.items(key)]
        self._children += [(f"{key}[{index}]", child) for index, child in enumerate(children)]
        return children


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _octets(value: object) -> bytes:
    return bytes.fromhex(_text(value))


def _items(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def shown(value: object) -> str:
    """Return a value in short, for a person: bytes as hex, long ones cut with their length."""
    text = value.hex() if isinstance(value, bytes) else repr(value)
    if len(text) <= _LONGEST_SHOWN:
        return text
    size = f"{len(value)} {'bytes' if isinstance(value, bytes) else 'items'}" if isinstance(value, Sized) else "cut"
    return f"{text[:_LONGEST_SHOWN]}... ({size})"


def _first_difference(expected: bytes, got: bytes) -> int:
    pairs = enumerate(zip(expected, got, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(expected), len(got)))


def same(claim: str, expected: object, got: object) -> Check:
    """Return a check that two values are equal, with both in its detail if they are not."""
    if expected == got:
        return Check(claim, ok=True)
    if isinstance(expected, bytes) and isinstance(got, bytes) and max(len(expected), len(got)) > _LONGEST_SHOWN // 2:
        at = _first_difference(expected, got)
        return Check(
            claim,
            ok=False,
            detail=f"{len(expected)} bytes expected, got {len(got)}; from byte {at} on "
            f"{shown(expected[at : at + 16])} expected, got {shown(got[at : at + 16])}",
        )
    return Check(claim, ok=False, detail=f"{shown(expected)} expected, got {shown(got)}")


def refused(claim: str, action: Callable[[], object], error: type[FairwayError] = FairwayError) -> Check:
    """Return a check that an action ends in one of fairway's errors."""
    try:
        got = action()
    except error:
        return Check(claim, ok=True)
    return Check(claim, ok=False, detail=f"an error expected, got {shown(got)}")


def replay_case(name: str, value: object, check: Callable[[Case], Iterator[Check]]) -> Iterator[Check]:
    """Run a checker on one case; each check carries the case's name, and nothing escapes as an exception."""
    try:
        case = Case(value)
        case.prose("name", "note")
        for result in check(case):
            yield replace(result, name=f"{name}: {result.name}")
    except MalformedCaseError as error:
        yield Check(name, ok=False, detail=f"malformed case: {error}")
        return
    except FairwayError as error:
        yield Check(name, ok=False, detail=f"fairway raised {type(error).__name__}: {error}")
        return
    except Exception as error:  # noqa: BLE001 - a replay must outlive any case and name it
        yield Check(name, ok=False, detail=f"fairway failed with {type(error).__name__}: {error}")
        return
    for key in case.unread():
        yield Check(f"{name}: {key}", ok=False, detail="this field is not understood, so it was not checked")


def replay_tables(
    name: str, value: object, tables: Mapping[str, Callable[[object], Iterator[Check]]], *, prose: Container[str] = ()
) -> Iterator[Check]:
    """Run for each field of an object the checker that a table has for it; a field without one is a failure."""
    if not isinstance(value, Mapping):
        yield Check(name, ok=False, detail=f"malformed group: an object expected, found {shown(value)}")
        return
    for key, content in value.items():
        if key in tables:
            yield from tables[key](content)
        elif key not in prose:
            yield Check(key, ok=False, detail="this part is not known, so it was not checked")


def replay_cases(values: object, check: Callable[[Case], Iterator[Check]], prefix: str = "") -> Iterator[Check]:
    """Run a checker on every case of a list; a case is named by its ``name`` or its index."""
    if not isinstance(values, list):
        yield Check(prefix or "cases", ok=False, detail=f"malformed group: a list expected, found {shown(values)}")
        return
    for index, value in enumerate(values):
        label = value.get("name") if isinstance(value, Mapping) else None
        name = f"{prefix}{label}" if isinstance(label, str) else f"{prefix}#{index}"
        yield from replay_case(name, value, check)


def case_list(check: Callable[[Case], Iterator[Check]], prefix: str = "") -> Callable[[object], Iterator[Check]]:
    """Return a checker of a whole list, made of one of a case."""
    return lambda values: replay_cases(values, check, prefix)


def one_case(check: Callable[[Case], Iterator[Check]], name: str) -> Callable[[object], Iterator[Check]]:
    """Return a checker of a single object, made of one of a case."""
    return lambda value: replay_case(name, value, check)


def one_or_more(check: Callable[[Case], Iterator[Check]]) -> Callable[[object], Iterator[Check]]:
    """Return a checker of one example, or of a list of them, made of one of a case."""
    return lambda value: replay_cases(value, check) if isinstance(value, list) else replay_case("example", value, check)

"""`check_type`, `check_callback` and `check_fields`: reject a value of a wrong type in the call that receives it.

Without a check such a value fails later, in code that its caller does not know. Or it silently changes the behaviour: a
text is a collection of its characters, and `True` is 1.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from fairway.errors import ConfigurationError

_WORDS: Final[dict[object, str]] = {
    str: "text",
    bytes: "bytes",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
}
_HINTS: Final[dict[type, dict[str, Any]]] = {}
"""The annotations of each class that `check_fields` has checked."""


def check_type(name: str, value: object, wanted: Any, advice: str = "") -> None:
    """Raise `ConfigurationError` if an argument is not of a type: a class, or an annotation such as ``int | None``.

    `True` and `False` do not count as integers, NaN not as a number, and a text or bytes not as a collection. The error
    shows only numbers, because other values may be secret.
    """
    if (type(value) is wanted and wanted is not float) or _fits(value, wanted):
        return
    if inspect.isawaitable(value):
        raise ConfigurationError(
            f"{name} must be {_described(wanted)}, and was given as a {type(value).__name__} that was not awaited: "
            "await it first, or use 'async with'"
        )
    given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    if isinstance(value, Mapping):
        pairs = {f"{type(key).__name__} to {type(item).__name__}" for key, item in value.items()}
        given = f"a {given} of {' and '.join(sorted(pairs)) or 'nothing'}"
    shown = repr(value) if isinstance(value, bool | int | float) else given
    raise ConfigurationError(f"{name} must be {_described(wanted)}, not {shown}{f'; {advice}' if advice else ''}")


def check_callback(name: str, function: object, *arguments: str) -> None:
    """Raise `ConfigurationError` if an object cannot be called with arguments, which the error names: ``an event``."""
    taken = " and ".join(arguments) or "no arguments"
    if not callable(function):
        given = f"not {type(function).__name__}; give the function, and do not call it"
        raise ConfigurationError(f"{name} must be a function of {taken}, {given}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ConfigurationError(f"{name} is called with {taken}, and this one cannot be: {error}") from None
    except ValueError:
        return  # Some functions in C have no signature.


def check_fields(options: Any) -> None:
    """Raise `ConfigurationError` if a field of a dataclass has another type than its annotation says."""
    kind = type(options)
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = get_type_hints(kind)
    for each in fields(kind):
        if each.init:
            check_type(each.name, getattr(options, each.name), hints[each.name])


def _fits(value: object, wanted: Any) -> bool:
    if wanted is Any or wanted is object:
        return True
    if isinstance(wanted, UnionType) or get_origin(wanted) is Union:
        return any(_fits(value, choice) for choice in get_args(wanted))
    if wanted is None:
        return value is None
    if wanted in {int, float} and isinstance(value, bool):
        return False
    if wanted is float:
        return isinstance(value, int | float) and not math.isnan(value)
    kind, items = get_origin(wanted), get_args(wanted)
    if kind is None:
        # A class has the methods that a protocol asks of its objects.
        is_object = not (isinstance(value, type) and getattr(wanted, "_is_protocol", False))
        return is_object and isinstance(value, wanted)
    if kind is Callable or not isinstance(value, kind):
        return kind is Callable and callable(value)
    if isinstance(value, str | bytes):
        return False
    if kind is tuple and items[1:] == (...,):
        return all(_fits(item, items[0]) for item in value)
    if kind is Mapping:
        return all(_fits(key, items[0]) and _fits(item, items[1]) for key, item in value.items())
    return True


def _described(wanted: Any) -> str:
    choices = get_args(wanted) if isinstance(wanted, UnionType) or get_origin(wanted) is Union else (wanted,)
    return " or ".join(map(_name_of, choices))


def _name_of(wanted: Any) -> str:
    if wanted is None or wanted in _WORDS:
        return _WORDS[wanted or NoneType]
    kind, items = get_origin(wanted) or wanted, get_args(wanted)
    if kind is Callable:
        return "a function"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(map(str, kind))}"
    name = getattr(kind, "__name__", str(kind))
    if items:
        words = [_described(item) for item in (items if kind is Mapping else items[:1])]
        name = f"{name.lower()} of {' to '.join(words)}"
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"

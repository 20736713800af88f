"""`short_errors`: lets errors of the data source reach Spark as a sentence.

Spark shows an error of a source in Python with its traceback in front. The errors of fairway say by themselves what was
given, what was expected and what to do, so that the frames that led to one only hide it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fairway.errors import FairwayError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def short_errors(work: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Return a function that raises the errors of fairway from one place, without what led to them."""

    @wraps(work)
    def wrapper(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return work(*given, **named)
        except FairwayError as error:
            raise error.with_traceback(None) from None

    return wrapper

"""The errors that fairway raises: copies for callers that raise the same one."""

from __future__ import annotations

import traceback

import pytest

from fairway import errors
from fairway.errors import copy_of

ERRORS = [
    errors.ChannelClosedError("the channel is closed"),
    errors.MessageTooLargeError(5, 4),
    errors.SegmentError("padding", "is not zero"),
    errors.RlnError(errors.RlnErrorKind.PERMANENT, "no membership"),
    errors.MissingExtraError("spark", "the pipeline", "pyspark"),
    OSError(28, "No space left on device", "alice.db"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    KeyError("missing"),
    ExceptionGroup("two failures", [ValueError("one"), TypeError("two")]),
]


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error from ValueError("the cause")
    return caught.value


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_copied_error_has_the_class_text_attributes_and_cause_of_the_original(error):
    copied = copy_of(raised(error))
    assert copied is not error
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
    assert copied.__cause__ is error.__cause__
    assert getattr(copied, "filename", None) == getattr(error, "filename", None)


def test_raising_copies_many_times_lengthens_no_traceback():
    error = raised(errors.ChannelClosedError("the channel is closed"))
    before = traceback.format_exception(error)
    lengths = {len(traceback.format_exception(raised(copy_of(error)))) for _ in range(100)}
    assert len(lengths) == 1
    assert traceback.format_exception(error) == before

"""What an installation may lack: packages that come with an extra of the distribution.

``pip install fairway`` brings the channel, the client and the pure core. Whatever needs more imports it inside of
`needing`, so that an installation without it says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fairway.errors import MissingExtraError


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import what comes with an extra; ``what`` is what cannot be had without it.

    A package that is not installed becomes a `MissingExtraError`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "fairway":
            raise
        raise MissingExtraError(extra, what, package) from error

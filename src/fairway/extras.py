"""`needing`: imports of packages that belong to optional extras.

``pip install fairway`` installs the channel, the client and the protocol. Code that needs other packages imports them
inside `needing`. If a package is not installed, the error names the extra to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fairway.errors import MissingExtraError


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import inside the block into a `MissingExtraError`.

    ``extra`` is the extra to install; ``what`` is the feature that needs the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "fairway":
            raise
        raise MissingExtraError(extra, what, package) from error

"""The command ``fairway``, also ``python -m fairway``. Without the extra ``cli`` it names the extra to install.

``spark-submit`` takes this file as its program: ``spark-submit .../fairway/__main__.py pipeline run ...``.
"""

from __future__ import annotations

import sys
from typing import Final, NoReturn

from fairway.errors import MissingExtraError
from fairway.extras import needing

_COULD_NOT_RUN: Final = 2


def main() -> NoReturn:
    """Run the command line and exit with its exit code."""
    try:
        with needing("cli", "the command line"):
            from fairway.cli import main as run  # noqa: PLC0415 - an extra
    except MissingExtraError as error:
        sys.stderr.write(f"fairway: {error}\n")
        sys.exit(_COULD_NOT_RUN)
    run()


if __name__ == "__main__":
    main()

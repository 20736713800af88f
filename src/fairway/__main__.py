"""``python -m fairway``: the command ``fairway``, run by a given interpreter."""

from __future__ import annotations

from fairway.cli import main

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Exit with 0 if the node in this container is ready, else with 1 and a line that says why.

FAIRWAY_REST is the address of its REST API (http://127.0.0.1:8645), FAIRWAY_TOKEN_FILE the file with the token that the
API asks for, if it does.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path

_TIMEOUT_S = 4.0


def main() -> int:
    """Ask ``/health``."""
    request = urllib.request.Request(os.environ.get("FAIRWAY_REST", "http://127.0.0.1:8645") + "/health")  # noqa: S310 - http
    try:
        if token_file := os.environ.get("FAIRWAY_TOKEN_FILE"):
            token = Path(token_file).read_text(encoding="utf-8").strip()
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the same
            report = json.load(answer)
            health, protocols = report["nodeHealth"], report.get("protocolsHealth", [])
            reasons = dict.fromkeys(protocol["desc"] for protocol in protocols if "desc" in protocol)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stdout.write(f"the node does not say how it is: {error}\n")
        return 1
    sys.stdout.write("; ".join([health, *reasons]) + "\n")
    return 0 if health == "READY" else 1


if __name__ == "__main__":
    sys.exit(main())

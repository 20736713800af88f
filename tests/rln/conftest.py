"""Tests of RLN run the compiled package fairway-rln. Without it they are skipped; in CI with Rust they must run."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def compiled() -> None:
    """Skip what needs fairway-rln where it is not installed."""
    if find_spec("fairway_rln") is not None:
        return
    reason = "fairway-rln is not installed: make rln"
    if os.environ.get("CI") == "true" and shutil.which("cargo") is not None:
        pytest.fail(reason)
    pytest.skip(reason)

"""Tests that share something dear run in one process: ours say so, and the plugin that spreads the tests heeds it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

TESTS = """
import pytest

@pytest.fixture
def js_folder():
    return 1

@pytest.mark.parametrize("number", range(8))
def test_dear(js_folder, number):
    assert js_folder

@pytest.mark.parametrize("number", range(8))
def test_cheap(number):
    assert number >= 0
"""


def test_tests_that_share_a_dear_fixture_run_in_one_process(tmp_path):
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_shared.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
        tmp_path,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    passed = re.findall(r"\[(gw\d)\] .*PASSED \S*::test_(\w+)\[", done.stdout)
    assert len(passed) == 16
    assert len({process for process, test in passed if test == "dear"}) == 1

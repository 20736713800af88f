"""Tests that share something dear run in one process: ours say so, and the plugin that spreads the tests heeds it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("processes", [0, 2])
def test_tests_of_a_folder_have_its_fixtures_though_others_stand_between_them_on_the_command_line(tmp_path, processes):
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef number():\n    return 1\n")
    for name in ("one", "two"):
        (inner / f"test_{name}.py").write_text("def test_it(number):\n    assert number == 1\n")
    (tmp_path / "test_outer.py").write_text("def test_it():\n    assert True\n")
    given = ["inner/test_one.py", "test_outer.py::test_it", "inner/test_two.py::test_it"]
    command = [sys.executable, "-m", "pytest", "-v", "-n", str(processes), "-p", "no:cacheprovider", *given]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    ran = re.findall(r"^(\S+)::test_it PASSED|PASSED (\S+)::test_it", done.stdout, re.MULTILINE)
    assert sorted(map("".join, ran)) == ["inner/test_one.py", "inner/test_two.py", "test_outer.py"]


@pytest.mark.full
def test_processes_begin_with_different_files_and_run_every_test_once(tmp_path):
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        said = f"import os\n\nwith open({str(tmp_path / 'read')!r}, 'a') as file:\n"
        said += f"    file.write(os.environ['PYTEST_XDIST_WORKER'] + ' {name}\\n')\n\n"
        (folder / f"test_{name}.py").write_text(f"{said}\ndef test_it():\n    assert True\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", tmp_path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    read = [line.split() for line in (tmp_path / "read").read_text().splitlines()]
    assert {process: [name for own, name in read if own == process] for process in ("gw0", "gw1")} == {
        "gw0": ["one", "two"],
        "gw1": ["two", "one"],
    }
    ran = re.findall(r"PASSED (\S+)::test_it", done.stdout)
    assert sorted(ran) == ["one/test_one.py", "two/test_two.py"]

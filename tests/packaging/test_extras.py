"""``pip install fairway`` has what the channel and the client need; whatever needs more says which extra brings it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import fairway
from fairway.errors import MissingExtraError
from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named_in(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[\w.-]+", requirement).group()) for requirement in requirements}


@pytest.fixture
def without_extras(tmp_path) -> dict[str, str]:
    """Return the environment of a Python that finds no package of an extra."""
    core = named_in(PROJECT["dependencies"])
    brought = set().union(*(named_in(needs) for needs in PROJECT["optional-dependencies"].values()))
    absent = [
        package
        for package, distributions in packages_distributions().items()
        if (names := {normal(name) for name in distributions}) & brought and not names & core
    ]
    assert {"typer", "starlette", "pyspark"} <= set(absent)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


def test_the_core_works_without_extras_and_names_a_missing_one(without_extras):
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("core_only.py"))],
        env=without_extras,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "two participants talk" in ended.stdout


def test_a_missing_extra_error_is_an_import_error_and_a_fairway_error():
    error = MissingExtraError("node", "the REST API of a node", "uvicorn")
    assert isinstance(error, ImportError)
    assert isinstance(error, fairway.FairwayError)
    assert (error.extra, error.name) == ("node", "uvicorn")
    assert str(error).endswith("pip install 'fairway[node]', or in the sources of fairway: pip install '.[node]'")
    # Its wheel is compiled, and may have to be made first.
    assert str(MissingExtraError("rln", "RLN", "fairway_rln")).endswith("or in the sources of fairway: make rln")


def test_every_requirement_of_the_project_has_its_version_in_the_constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = named_in([line for line in lines if line and not line.startswith("#")])
    wanted = named_in(PROJECT["dependencies"]).union(*map(named_in, PROJECT["optional-dependencies"].values()))
    assert wanted <= pinned


def test_two_builds_of_the_wheel_are_the_same_bytes(tmp_path):
    def built(name: str, mode: int) -> bytes:
        copy = tmp_path / name
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"):
            shutil.copyfile(ROOT / file, copy / file)
        for file in copy.rglob("*"):
            if file.is_file():
                file.chmod(mode)
                os.utime(file, (mode, mode))
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(copy / "dist")]
        subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=PATIENCE_S)
        (wheel,) = (copy / "dist").iterdir()
        return wheel.read_bytes()

    assert built("first", 0o644) == built("second", 0o600)

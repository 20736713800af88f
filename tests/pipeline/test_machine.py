from __future__ import annotations

import pytest

from fairway.pipeline import machine

GIB = 1_024


@pytest.fixture
def meminfo(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       32000000 kB\nMemAvailable:   16777216 kB\n")
    return path


@pytest.fixture
def cgroup(tmp_path):
    path = tmp_path / "cgroup"
    path.mkdir()
    return path


def test_available_memory_is_what_the_kernel_says(meminfo, cgroup):
    assert machine.available_memory_mib(meminfo, cgroup) == 16 * GIB


def test_a_container_limits_what_is_available(meminfo, cgroup):
    (cgroup / "memory.max").write_text(f"{4 * GIB * machine.MIB}\n")
    (cgroup / "memory.current").write_text(f"{GIB * machine.MIB}\n")
    assert machine.available_memory_mib(meminfo, cgroup) == 3 * GIB


def test_a_container_without_a_limit_does_not(meminfo, cgroup):
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("1\n")
    assert machine.available_memory_mib(meminfo, cgroup) == 16 * GIB


def test_an_unknown_system_still_gives_a_figure(tmp_path):
    assert machine.available_memory_mib(tmp_path / "none", tmp_path / "none") > 0


@pytest.mark.parametrize(
    ("available", "expected"),
    [(100, machine.MIN_MEMORY_MIB), (10 * GIB, 3 * GIB), (1_000 * GIB, machine.MAX_MEMORY_MIB)],
)
def test_the_jvm_gets_a_bounded_share(available, expected):
    assert machine.jvm_memory_mib(available) == expected


def test_there_is_at_least_one_core():
    assert machine.cores() >= 1


@pytest.mark.parametrize(
    ("tasks", "available", "expected"),
    [(1, 100 * GIB, 1_024), (2, 100 * GIB, 1_024), (16, 100 * GIB, 4_608), (16, 10 * GIB, 3 * GIB), (64, 100, 1_024)],
)
def test_a_jvm_that_passes_on_what_python_works_on_needs_memory_for_each_task(tasks, available, expected):
    assert machine.jvm_memory_to_pass_on_mib(tasks, available) == expected

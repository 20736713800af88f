"""`write_generated`: writes a generated archive into a folder, which appears whole or not at all."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline.generator.block import store_name
from fairway.pipeline.generator.plan import GeneratorPlan
from fairway.pipeline.generator.tables import generate, truth
from fairway.pipeline.location import local_path

_FOLDER: Final = "the folder of an archive"
_MESSAGES: Final = "waku_messages"
_TRUTH: Final = "truth"
WRITTEN: Final = (_MESSAGES, _TRUTH)
"""The tables that are written, in order."""
_REMOVED_FOR_GOOD: Final = 20
"""So many looks in a row that do not find a folder: tasks that are being ended may still make a file."""
_LOOKS: Final = 300
_BETWEEN_LOOKS_S: Final = 0.1


def check_new(folder: Path | str) -> Path:
    """Return the path of a folder that is to be made; raise `ConfigurationError` if it exists or cannot be made."""
    target = local_path(folder, _FOLDER)
    if target.exists():
        raise ConfigurationError(f"{target} exists; give a new name")
    if not target.absolute().parent.is_dir():
        raise ConfigurationError(f"{target}: there is no folder {target.absolute().parent} to make it in")
    return target


def write_generated(
    spark: SparkSession, plan: GeneratorPlan, folder: Path | str, *, progress: Callable[[str], None] = lambda _: None
) -> None:
    """Write a generated archive as Parquet: ``waku_messages``, ``truth`` (partitioned by fact) and ``plan.json``.

    The messages of each store are in a folder of their own, so that a run can be given them as sources
    (`written_sources`). ``folder`` is a path of the driver and of all executors. ``progress`` is called with the name
    of each table (`WRITTEN`) before it is written. If the work is interrupted or fails, its jobs are ended and what it
    wrote is removed. Raises `ConfigurationError` if the folder exists, or is not on this machine.
    """
    target = check_new(folder)
    token = uuid.uuid4().hex
    beside = target.with_name(f".{target.name}.{token[:8]}.part")
    spark.addTag(token)
    try:
        for name, table, by in ((_MESSAGES, generate, "source"), (_TRUTH, truth, "fact")):
            progress(name)
            _write(table(spark, plan), beside / name, by)
        (beside / "plan.json").write_text(plan.as_json() + "\n", encoding="utf-8")
        check_new(target)
        beside.rename(target)
    except BaseException:
        spark.interruptTag(token)
        _remove(beside)
        raise
    finally:
        spark.removeTag(token)


def written_sources(plan: GeneratorPlan, folder: Path | str) -> list[str]:
    """Return the URIs of the stores of a written archive, as a run takes them: ``store-0=parquet:...``."""
    names = map(store_name, range(plan.stores))
    return [f"{name}=parquet:{local_path(folder, _FOLDER) / _MESSAGES / f'source={name}'}" for name in names]


def _write(table: DataFrame, place: Path, by: str) -> None:
    table.write.partitionBy(by).parquet(str(place))


def _remove(folder: Path) -> None:
    """Remove a folder into which tasks that are being ended may still write."""
    missed = 0
    for _ in range(_LOOKS):
        shutil.rmtree(folder, ignore_errors=True)
        missed = 0 if folder.exists() else missed + 1
        if missed == _REMOVED_FOR_GOOD:
            return
        time.sleep(_BETWEEN_LOOKS_S)

"""`write_generated`: Spark writes a generated archive into a folder, which appears whole or not at all."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline.location import local_path
from fairway.pipeline.run.failures import failure_said
from fairway.testing.archives.block import store_name
from fairway.testing.archives.plan import GeneratorPlan
from fairway.testing.archives.tables import generate, truth

_FOLDER: Final = "the folder of an archive"
_MESSAGES: Final = "waku_messages"
_PLAN: Final = "plan.json"


def check_new(folder: str | PathLike[str]) -> Path:
    """Return the path of a new folder; raise `ConfigurationError` if it exists or cannot be made."""
    target = local_path(folder, _FOLDER).absolute()
    if target.exists():
        raise ConfigurationError(f"{target} exists; give a new name")
    if not target.parent.is_dir():
        raise ConfigurationError(f"{target}: there is no folder {target.parent} to make it in")
    return target


def write_generated(
    spark: SparkSession,
    plan: GeneratorPlan,
    folder: str | PathLike[str],
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write a generated archive as Parquet: ``waku_messages``, ``truth`` (partitioned by fact) and ``plan.json``.

    The messages of each store are in their own folder, as sources for a run (`written_sources`). ``folder`` is a path
    of the driver and of all executors. ``progress`` is called with the name of each table before it is written. Raises
    `ConfigurationError` if the folder exists or cannot be made, `StoreFullError` for a full disk, and `PipelineError`
    for other errors of Spark.
    """
    target = check_new(folder)
    made = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        for name, frame, by in ((_MESSAGES, generate(spark, plan), "source"), ("truth", truth(spark, plan), "fact")):
            progress(name)
            frame.write.partitionBy(by).parquet((made / name).as_uri())
        (made / _PLAN).write_text(plan.as_json() + "\n", encoding="utf-8")
        made.rename(target)
    except (Py4JJavaError, PythonException) as error:
        what = f"Spark could not make the archive in {target}"
        raise failure_said(str(error), target, what, "start the command again") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def written_sources(plan: GeneratorPlan, folder: str | PathLike[str]) -> list[str]:
    """Return the URIs of the stores of a written archive, as sources for a run: ``store-0=parquet:...``."""
    place = local_path(folder, _FOLDER) / _MESSAGES
    return [f"{name}=parquet:{place}/source={name}" for name in map(store_name, range(plan.stores))]

"""Spreads the input of a job over its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.exchange import BLOBS, Batches, begin_task, in_tasks

Item = TypeVar("Item")


def shared_out(
    spark: SparkSession, items: Sequence[Item], tasks: int, work: Callable[[Sequence[Item]], Batches]
) -> DataFrame:
    """Return the result of ``work`` over items as rows of `BLOBS`; ``tasks`` tasks share the items evenly."""

    def work_on(numbers: Batches) -> Batches:
        begin_task()
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from work(items[number::tasks])

    return in_tasks(spark.range(0, tasks, 1, tasks), work_on, BLOBS)

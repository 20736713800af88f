r"""The report of a run where the jobs ran: what ``fairway pipeline report`` does, with the words of the other jobs.

::

    spark-submit .../fairway/pipeline/jobs/report.py --out /shared/run --html /shared/report.html

Needs no session and starts none: the tables of a run are aggregates by then, and are read as files. So it is for client
mode, where the program runs on the machine that submits. Prints the report as JSON. Exit codes: 0 every row of the run
is accounted for, 1 not, 2 there is no report.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from fairway.pipeline.jobs.arguments import exit_code_of
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.run.reading import RunTables


def main(arguments: Sequence[str] | None = None) -> int:
    """Report with command line arguments, and return the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code_of(lambda: _report(given))


def _report(given: argparse.Namespace) -> int:
    tables = RunTables(given.out)
    if given.html is not None:
        write_html_report(given.out, given.html)
    sys.stdout.write(json.dumps(report_json(tables, given.limit)) + "\n")
    return 0 if tables.balance.adds_up else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Tell what a run or a stream found out.")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder of the run or the stream")
    parser.add_argument("--html", metavar="FILE", help="write one page for a browser as well, which needs no network")
    parser.add_argument("--limit", type=int, default=20, help="rows in each list")
    return parser


if __name__ == "__main__":
    sys.exit(main())

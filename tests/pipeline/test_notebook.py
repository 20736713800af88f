"""docs/notebook.ipynb runs as it stands, in a kernel of Jupyter, and shows what it holds; its plots show the truth."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import nbformat
import numpy as np
import pyarrow as pa
from matplotlib.image import imread
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from fairway.storage.nwaku_archive import NwakuArchive
from fairway.testing.archives import GeneratorPlan, facts_mapper, rows_mapper
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S

pytestmark = pytest.mark.xdist_group("notebook")  # it is executed once

PAGE = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
BOOK = nbformat.read(PAGE, as_version=4)
CELL_S = int(4 * PATIENCE_S)
"""How long a cell may take before it counts as hung: the first one starts Spark and does a whole run."""
PLOTS = ("losses", "gaps", "latency", "outage", "bandwidth")

PROBES = {
    "losses": "dict(zip([l.get_text() for l in axes.get_yticklabels()], [b.get_width() for b in axes.patches]))",
    "gaps": "sum(bar.get_height() for bar in axes.patches)",
    "latency": "axes.lines[0].get_xydata().tolist()",
    "outage": "{line.get_label(): line.get_ydata().tolist() for line in axes.lines}",
    "bandwidth": "{bars.get_label(): sum(bar.get_width() for bar in bars) for bars in axes.containers}",
    "own": "[tables.balance.rows_in, *sorted(channels.index)]",
}
"""By the id of a cell, what its plot shows, as an expression in the notebook."""


def cell_of(book, cell_id):
    return next(cell for cell in book.cells if cell.id == cell_id)


def the_plan():
    """Return the plan of the archive that the first cell makes."""
    (arguments,) = re.findall(r"GeneratorPlan\((.*)\)", cell_of(BOOK, "losses").source)
    return GeneratorPlan(**{name: ast.literal_eval(value) for name, value in re.findall(r"(\w+)=([\w.]+)", arguments)})


def made(mapper):
    """Return the rows that a part of the generator makes, without Spark."""
    return [row for batch in mapper(iter([pa.RecordBatch.from_pydict({"id": [0]})])) for row in batch.to_pylist()]


def probe_of(cell):
    """Return a cell that prints what the plot of this one shows; none if it has no plot."""
    if cell.id in PROBES:
        code = f"import json\nprint(json.dumps({PROBES[cell.id]}, default=float))"
        return [new_code_cell(code, id=f"{cell.id}-told")]
    return []


@pytest.fixture(scope="module")
def facts():
    return made(facts_mapper(the_plan()))


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run the notebook with a probe after each plot, and at its end its example with archives of one's own."""
    folder = tmp_path_factory.mktemp("notebook")
    for name, source in (("one", "store-0"), ("two", "store-1")):
        with NwakuArchive(folder / f"{name}.db") as archive:
            for row in made(rows_mapper(GeneratorPlan(messages=200, channels=2, stores=2))):
                if row["source"] == source:
                    message = WakuMessage(
                        payload=row["payload"], content_topic=row["content_topic"], timestamp_ns=row["timestamp_ns"]
                    )
                    archive.append(row["pubsub_topic"], message)
    book = deepcopy(BOOK)
    text = cell_of(book, "own")
    (own,) = re.findall(r"```python\n(.*?)```", text.source, re.DOTALL)
    book.cells.remove(text)
    book.cells.append(new_code_cell(own, id=text.id))
    book.cells = [cell for shown in book.cells for cell in (shown, *probe_of(shown))]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
            (folder / name).mkdir()
            patch.setenv(name, str(folder / name))
        where = {"metadata": {"path": str(folder)}}
        client = NotebookClient(book, timeout=CELL_S, startup_timeout=PATIENCE_S, resources=where)
        return client.execute()


def told(executed, cell_id):
    """Return what the plot of a cell shows."""
    return json.loads(cell_of(executed, f"{cell_id}-told").outputs[0].text)


def shown(cell):
    """Return the outputs of a cell: each text, and each picture as levels of red, green and blue."""
    for output in cell.outputs:
        data = {"text/plain": output.text} if output.output_type == "stream" else output.data
        if "image/png" in data:
            yield imread(io.BytesIO(base64.b64decode(data["image/png"])))[:, :, :3]
        else:
            yield data["text/plain"]


def test_ten_lines_lead_from_the_imports_to_a_plot_of_losses():
    lines = [line for line in cell_of(BOOK, "losses").source.splitlines() if line]
    assert len(lines) == 10
    assert "lost" in lines[-1]


def test_the_notebook_holds_a_picture_of_each_plot_and_nothing_of_the_machine_that_drew_it():
    nbformat.validate(BOOK)
    drawn = {cell.id for cell in BOOK.cells if cell.cell_type == "code" and any(map(is_picture, shown(cell)))}
    assert drawn == set(PLOTS)
    assert not any(cell.metadata for cell in BOOK.cells)
    assert BOOK.metadata["language_info"] == {"name": "python"}
    assert PAGE.stat().st_size < 250_000


def is_picture(output):
    return isinstance(output, np.ndarray)


@pytest.mark.full
def test_the_notebook_shows_what_it_holds(executed):
    for cell in BOOK.cells:
        if cell.cell_type == "code":
            now, held = list(shown(cell_of(executed, cell.id))), list(shown(cell))
            assert [output for output in now if not is_picture(output)] == [
                output for output in held if not is_picture(output)
            ]
            for drawn, kept in zip(filter(is_picture, now), filter(is_picture, held), strict=True):
                assert drawn.shape == kept.shape, f"{cell.id} draws something else: make notebook"
                # Other processors round edges otherwise.
                assert np.abs(drawn - kept).mean() < 0.01, f"{cell.id} draws something else: make notebook"


@pytest.mark.full
def test_the_plots_show_what_was_generated(executed, facts):
    plan = the_plan()
    sent = [fact for fact in facts if fact["fact"] == "carrier" and not fact["is_retransmission"]]
    content = Counter(fact["channel_id"] for fact in sent if fact["kind"] == "content")
    missing = [fact for fact in facts if fact["fact"] == "missing" and not fact["is_rebuilt"]]
    lost = Counter(fact["channel_id"] for fact in missing)

    assert len(content) == plan.channels
    assert told(executed, "losses") == pytest.approx(
        {channel: 100 * lost[channel] / (lost[channel] + content[channel]) for channel in content}
    )
    assert told(executed, "gaps") == len(missing)

    heard = {(fact["channel_id"], fact["message_id"]) for fact in facts if fact["fact"] == "acknowledged"}
    known = {(fact["channel_id"], fact["message_id"]) for fact in sent if fact["kind"] == "content"}
    soon = told(executed, "latency")
    assert soon[-1][1] == pytest.approx(len(heard & known) / len(known))
    assert any(seconds % 1 for seconds, _ in soon), "0.997 s is drawn at another second"

    outage = told(executed, "outage")
    assert outage["store-1"].count(0) == 3
    down = [share for share, other in zip(outage["store-0"], outage["store-1"], strict=True) if other == 0]
    assert down == [100, 100, 100]

    carried = sum(fact["payload_bytes"] for fact in facts if fact["fact"] == "carrier" and fact["status"] == "ok")
    assert sum(told(executed, "bandwidth").values()) == pytest.approx(carried / 1e3)


@pytest.mark.full
def test_the_example_with_archives_of_ones_own_runs(executed):
    rows = made(rows_mapper(GeneratorPlan(messages=200, channels=2, stores=2)))
    unlike = {(row["source"], row["message_hash"]) for row in rows}
    assert told(executed, "own") == [len(unlike), "channel-000000", "channel-000001"]

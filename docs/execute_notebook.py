"""Executes notebook.ipynb, and keeps its outputs in it but nothing of the machine or the time (`make notebook`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

PAGE = Path(__file__).with_name("notebook.ipynb")

book = nbformat.read(PAGE, as_version=4)
with TemporaryDirectory() as folder:
    book = NotebookClient(book, record_timing=False, resources={"metadata": {"path": folder}}).execute()
for cell in book.cells:
    cell.metadata.clear()
book.metadata["language_info"] = {"name": "python"}
nbformat.write(book, PAGE)

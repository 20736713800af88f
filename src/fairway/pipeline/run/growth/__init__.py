"""Growth: adds new rows of the sources to the tables of a run, in the driver and without Spark.

::

    new_rows -> messages -> segments -> channels -> growing: files, and a commit of each table

`messages` and `segments` replace single rows. `channels` makes the other tables again for all channels with a new row.
`held_rows` finds rows of the tables.
"""

from __future__ import annotations


class WholeRunNeeded(Exception):  # noqa: N818 - it says what to do next, and never leaves the run
    """Only a run over all rows gives the right tables, or is cheaper; the text has the reason."""

"""Growth: adds new rows of the sources to the tables of a run, instead of rebuilding the tables.

::

    new_rows -> messages -> channels -> logs -> figures -> growing: files, and a commit of each table

`held_rows` finds the affected rows of the tables; `whole_run` has the exception that requests a run over all rows.
"""

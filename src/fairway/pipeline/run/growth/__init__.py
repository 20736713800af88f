"""Growth: takes what is new in the sources of a run into its tables, instead of making them anew.

::

    new_rows -> messages -> channels -> logs -> figures -> growing: files, and a commit of each table

`held_rows` finds the rows of the tables that are touched; `whole_run` says when a run over everything is needed.
"""

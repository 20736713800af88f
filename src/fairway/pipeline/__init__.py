"""The Spark shell: the same protocol over whole archives.

`fairway.pipeline.report.run_report` is the short way. Its parts can be used alone, in any Spark session: a
source (`fairway.pipeline.sources`), the stages, each a function from DataFrame to DataFrame
(`fairway.pipeline.stages`), and a session where there is none (`fairway.pipeline.session`).

Nothing is imported here, so that a program without the ``spark`` extra can import `fairway`.
"""

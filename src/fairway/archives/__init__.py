"""Operations on archives and finished runs, without Spark.

- `fairway.archives.backfill.backfill`: writes the missing messages of one archive or node from another archive
- `fairway.archives.export.export`: writes the messages of a run as files or rows
- `fairway.archives.restore.restore`: makes the store of a live channel from a run
- `fairway.archives.violations.violations`: the RLN memberships that exceeded their rate limit, from a run

All need the ``spark`` extra, for pyarrow.
"""

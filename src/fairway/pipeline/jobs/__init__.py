"""Programs for ``spark-submit``, and for ``python -m`` without a cluster: they take the session they are given."""

"""A node that serves others, in this process: relay, light push, filter and store over one archive."""

"""Storage: the state of channels, and archives of messages.

`fairway.storage.channel_store` defines the state of a channel; `MemoryStore` keeps it in memory, `SqliteStore` in a
file, and `StoreReader` reads such a file from outside. `fairway.storage.nwaku_archive` keeps the messages of a network
in the file format of a nwaku store node.
"""

"""What must survive a crash: archives of messages and the state of channels, each behind a small interface.

`fairway.storage.channel_store` says what is kept of a channel; `MemoryStore` keeps it as long as the process lives,
`SqliteStore` in a file, and `StoreReader` looks into such a file from outside.
`fairway.storage.nwaku_archive` keeps the messages of a network in the file format of a nwaku store node.
"""

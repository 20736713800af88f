"""What must survive a crash: archives of messages and the state of channels, each behind a small interface.

`fairway.storage.nwaku_archive` keeps the messages of a network in the file format of a nwaku store node.
"""

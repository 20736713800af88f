"""Files of any size over a reliable channel: `send_file`, and `FileReceiver` for what comes.

A small file is one message. A larger one is a manifest and parts, each a message of its own
(`fairway.wire.file_message`). Neither side holds more than a few parts in memory, and both go on after a crash where
they were.
"""

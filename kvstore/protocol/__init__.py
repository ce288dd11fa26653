"""Decisions of the distributed store: messages in, messages out, no sockets."""

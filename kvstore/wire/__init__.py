"""Bytes between processes: frames, compression, sockets, shared memory, encryption."""

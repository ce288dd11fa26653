"""The server of a distributed store: its values and its rounds."""

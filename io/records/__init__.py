"""RecordIO: the format, local and remote files, and indexes."""

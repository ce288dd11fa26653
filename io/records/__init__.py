"""RecordIO: the format, files on disk and elsewhere, indexes."""

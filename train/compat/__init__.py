"""MXNet modules that scripts import besides training: base, util, runtime, log, test_utils."""

"""MXNet modules besides training that scripts import: base, util, runtime, log, test_utils."""

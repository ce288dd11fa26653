"""`mx.log`: loggers whose lines begin with level, time and source line."""

from __future__ import annotations

import logging
from logging import CRITICAL, DEBUG, ERROR, INFO, NOTSET, WARNING

__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "getLogger", "get_logger"]

_FORMAT = "%(levelname).1s%(asctime)s %(process)d %(filename)s:%(funcName)s:%(lineno)d] %(message)s"

_with_handler: set[str] = set()  # names of loggers


def get_logger(name: str | None = None, filename: str | None = None, filemode: str | None = None, level: int = WARNING
               ) -> logging.Logger:
    """Return the logger called name, with one handler: for filename (filemode "a" by default), or for stderr."""
    logger = logging.getLogger(name)
    if name is not None and name not in _with_handler:
        handler = logging.FileHandler(filename, filemode or "a") if filename else logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT, "%m%d %H:%M:%S"))
        logger.addHandler(handler)
        logger.setLevel(level)
        _with_handler.add(name)
    return logger


getLogger = get_logger  # MXNet's older name

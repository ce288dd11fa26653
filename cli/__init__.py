"""The command line: `tritium`, a file for each large command."""

from .commands import main as main

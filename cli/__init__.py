"""The command line `tritium`: one file for each large command."""

from .commands import main as main

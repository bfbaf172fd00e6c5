"""The command line: one command a file, each a thin wrapper of the function it is named after."""

from headscope.cli.app import main

__all__ = ["main"]

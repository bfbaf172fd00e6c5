"""The command line: the tree of commands, made of the studies and their settings."""

from headscope.cli.app import main

__all__ = ["main"]

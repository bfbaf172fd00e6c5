"""Putting heads to use, each in a run folder: one file a command."""

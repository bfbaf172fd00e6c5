"""Comparisons of heads, each in a run folder: one file a command."""

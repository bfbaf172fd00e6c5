"""The experiments of a paper as a list; a name that moved to `command`."""

from headscope.papers.command import listing as listing

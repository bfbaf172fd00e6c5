"""The commands `headscope pocket …`, one a file."""

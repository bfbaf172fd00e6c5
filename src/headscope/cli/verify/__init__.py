"""The commands `headscope verify …`, one a file."""

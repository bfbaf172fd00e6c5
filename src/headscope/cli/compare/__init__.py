"""The commands `headscope compare …`, one a file."""

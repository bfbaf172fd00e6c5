"""The commands `headscope find …`, one a file."""

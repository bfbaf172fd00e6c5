"""The commands `headscope use …`, one a file."""

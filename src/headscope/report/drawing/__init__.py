"""Blocks as HTML: one module a kind of block."""

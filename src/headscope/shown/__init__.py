"""Blocks: what a run shows, as plain values that know neither models nor run folders nor pages."""

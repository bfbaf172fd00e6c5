"""Focusing on Language: the heads of languages, and what they can be used for (LAHIS)."""

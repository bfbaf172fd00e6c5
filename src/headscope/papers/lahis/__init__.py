"""Focusing on Language: the heads of languages, and what they can be used for (LAHIS)."""

from headscope.papers.lahis.paper import PAPER

__all__ = ["PAPER"]

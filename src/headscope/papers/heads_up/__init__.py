"""Heads Up!, learned head masks (ICML 2025)."""

from headscope.papers.heads_up.paper import PAPER

__all__ = ["PAPER"]

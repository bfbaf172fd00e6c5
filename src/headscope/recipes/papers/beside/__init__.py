"""Experiments beside those of the papers, which a review asked for."""

from headscope.recipes.papers.beside.paper import PAPER

__all__ = ["PAPER"]

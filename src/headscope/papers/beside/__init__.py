"""Experiments beside those of the papers, which a review asked for."""

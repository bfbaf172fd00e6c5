"""LAHIS, language attention heads (Liu et al. 2025)."""

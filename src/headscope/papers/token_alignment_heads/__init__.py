"""Token Alignment Heads (ICLR 2026)."""

from headscope.papers.token_alignment_heads.paper import PAPER

__all__ = ["PAPER"]

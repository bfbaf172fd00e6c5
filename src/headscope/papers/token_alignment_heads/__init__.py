"""Token Alignment Heads (ICLR 2026)."""

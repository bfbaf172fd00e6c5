"""How much documents need some heads: losses with and without them (TRater).

Needs torch, transformers, safetensors and numpy alone.
"""

from headscope.use.rating.texts import Rated, Rating, Unrated, fitted, rate_texts

__all__ = ["Rated", "Rating", "Unrated", "fitted", "rate_texts"]

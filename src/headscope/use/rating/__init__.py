"""How much documents need some heads: losses with and without them (TRater).

`texts` rates, by the rows that `windows` makes of them and the passes of `passes`; `fitting` finds
how large a batch memory holds.  Needs torch, transformers, safetensors and numpy alone.
"""

from headscope.use.rating.fitting import fitted
from headscope.use.rating.texts import Rated, Rating, Unrated, rate_texts

__all__ = ["Rated", "Rating", "Unrated", "fitted", "rate_texts"]

"""The text over which heads' mean outputs are taken, where these take the place of removed ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel

__all__ = ["Reference"]


@dataclass(frozen=True)
class Reference:
    """Texts, and in words where they come from."""

    source: str
    texts: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the texts."""
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()

    def means(self, lm: LanguageModel, batch_tokens: int) -> NDArray[np.float32]:
        """Mean outputs of all heads (see `headscope.lm.ablation.head_means`)."""
        from headscope.lm.ablation import head_means

        return head_means(lm, self.texts, batch_tokens)

    def as_dict(self) -> dict[str, Any]:
        """What it is, as a JSON object."""
        return {"source": self.source, "texts": len(self.texts), "digest": self.digest}

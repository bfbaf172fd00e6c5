"""Whether a LoRA adapter is the gate on a model of some architecture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from headscope.errors import InputError, first_line
from headscope.heads import Gate
from headscope.lm.architectures import VOCABULARY
from headscope.use.exporting.lora import lora_adapter
from headscope.use.exporting.proof import largest_difference, logits_of, lora_loaded

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: How far logits in float32 may be apart, as a share of the largest one.
LIMIT = 1e-5
_VALUES = (0.0, 0.3, 1.0, 1.7)


@dataclass(frozen=True)
class LoraCheck:
    """What became of an adapter.

    Attributes:
        projections: the classes of the output projections.
        difference: the largest difference in logits between PEFT's model and the gated one, as a
            share of the largest logit; None: there is no adapter.
        reason: why there is none, or why PEFT does not load it.
    """

    projections: tuple[str, ...]
    difference: float | None = None
    reason: str = ""

    @property
    def equal(self) -> bool:
        """Whether the logits are equal but for rounding."""
        return self.difference is not None and self.difference <= LIMIT


def lora_check(lm: LanguageModel) -> LoraCheck:
    """Write an adapter of a gate on all heads of a small model, load it by PEFT, and compare."""
    projections = tuple(sorted({type(site.projection).__name__ for site in lm.sites}))
    values = np.resize(_VALUES, lm.geometry.shape)
    gate = Gate(lm.geometry, np.where(lm.geometry.mask(), values, 1))
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in (14, 9)]
    with TemporaryDirectory() as folder:
        adapter = Path(folder) / "adapter"
        try:
            lora_adapter(lm, gate, adapter)
            with lm.gated(gate):
                wanted = logits_of(lm.model, rows)
            with lora_loaded(lm.model, adapter, gate, lm.sites) as model:
                found = logits_of(model, rows)
        except InputError as error:
            return LoraCheck(projections, reason=first_line(error))
        except Exception as error:  # whatever PEFT raises for a stranger's model is the answer
            return LoraCheck(projections, reason=f"{type(error).__name__}: {first_line(error)}")
    largest = max(float(logits.abs().max()) for logits in wanted)
    return LoraCheck(projections, largest_difference(found, wanted) / largest)

"""Greedy continuation of many prompts, each exactly as if it were alone, under a gate of its own.

`texts` is the way in; `stopping` says where a text ends; `pool` lets rows enter and leave a batch.
"""

from headscope.lm.generation.stopping import NewlineStop, RowStop, Stop, StopTable, newline_stop
from headscope.lm.generation.texts import (
    GenerateConfig,
    Generation,
    Observer,
    generate,
    generate_batch,
)

__all__ = [
    "GenerateConfig",
    "Generation",
    "NewlineStop",
    "Observer",
    "RowStop",
    "Stop",
    "StopTable",
    "generate",
    "generate_batch",
    "newline_stop",
]

"""Writing a gate into what others load: ordinary checkpoints, and adapters for stock PEFT."""

from headscope.lm.hollow import hollow_model
from headscope.use.exporting.checkpoint import fold_checkpoint, ia3_adapter
from headscope.use.exporting.lora import lora_adapter

__all__ = ["fold_checkpoint", "hollow_model", "ia3_adapter", "lora_adapter"]

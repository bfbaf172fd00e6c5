"""Tasks of inputs and outputs: files, instructions, few-shot prompts, and what is held out."""

from headscope.data.tasks.building import (
    few_shot,
    hybrid,
    in_language,
    prompt,
    split_task,
    translation_task,
)
from headscope.data.tasks.files import read_task
from headscope.data.tasks.instructions import INSTRUCTIONS, instruction_for
from headscope.data.tasks.task import DEFAULT_BARE, Example, Task, filled

__all__ = [
    "DEFAULT_BARE",
    "INSTRUCTIONS",
    "Example",
    "Task",
    "few_shot",
    "filled",
    "hybrid",
    "in_language",
    "instruction_for",
    "prompt",
    "read_task",
    "split_task",
    "translation_task",
]

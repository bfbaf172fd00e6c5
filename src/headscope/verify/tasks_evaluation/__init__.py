"""Multiple-choice and generation tasks under a gate, by lm-evaluation-harness.

`library` finds tasks by name and keeps the harness from changing anything else, `files` reads local
ones, `harness` shows a model that is already loaded and gated to the harness, and `evaluate` runs a
task and says what its outcomes show.
"""

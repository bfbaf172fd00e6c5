"""`headscope verify measure`: the evidence of a run again from its outputs, without the model."""

from __future__ import annotations

from headscope.cli.verify.removal import removal_table
from headscope.studies.study import Study
from headscope.studies.verify.removal import MeasureAgain, measure_again

__all__ = ["command"]

command = Study(MeasureAgain, measure_again, removal_table, out=None, loads=False)

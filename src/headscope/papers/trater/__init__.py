"""The TRater experiment: the pocket model trained anew on mixtures of a corpus it rated.

Token Alignment Heads, section 5.3 and Table 1, at the size of a pocket: a corpus is rated by how
much its documents need the token alignment heads, the documents that need them most are left out
or repeated three times, and the models trained on either are measured.
"""

from headscope.papers.trater.experiment import COMMAND, TraterExperiment, trater_experiment

__all__ = ["COMMAND", "TraterExperiment", "trater_experiment"]

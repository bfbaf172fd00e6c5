"""A fixed policy of simultaneous translation: k words are read, then one for each one written."""

from headscope.evidence.rows import Control

WAIT_K = Control("wait-k")

"""The original model with an instruction in the prompt: does a mask do as much?"""

from headscope.evidence.rows import Control

INSTRUCTED = Control("the instructed model")

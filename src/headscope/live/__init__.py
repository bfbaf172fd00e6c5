"""The live page: a model whose heads are switched off while its output is read."""

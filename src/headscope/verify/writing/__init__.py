"""What a model writes without heads of its languages, or with them turned up.

`arms` plans under which gates the model writes, `texts` lets it write; three questions are asked:
`summaries` (how well does it still write), `off_target` (in which language), `transfer` (which of
two statements does it follow). `evidence` compares what was measured, without the model.
"""

"""What a model writes without heads of its languages, or with them turned up.

`texts` plans under which gates the model writes and lets it write, `ranks` reads how near it is to
an answer; `measures` says which heads are changed for a question and what is counted, `evidence`
compares what was counted. The last two need no model.
"""

"""What a model writes without heads of its languages, or with them turned up.

`texts` plans under which gates the model writes and lets it write, `ranks` reads how near it is to
an answer; `measures`, which needs no model, says which heads are changed and counts outputs.
"""

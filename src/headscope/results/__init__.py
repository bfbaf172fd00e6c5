"""What commands return, as frozen types whose field names are the JSON contract; no model is known.

A study makes them, `headscope.runs` writes and reads them, terminal and report show them.
"""

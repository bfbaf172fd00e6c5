"""What goes wrong in a translation: no translation, hallucination, missing details, or other.

`classify` holds the rules and the case they return, `backing` what an output has to show for
itself; `judge` asks a language model instead.
"""

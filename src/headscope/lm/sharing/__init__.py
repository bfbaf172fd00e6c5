"""Passes that differ from some layer on share what lies below it.

`prefix` records and replays a layer's output; `many_gates` runs one prompt under many gates, and
`continuing` continues it under each; `gated_losses` takes the losses of a batch with and without a
gate, `answers` those of references under many gates.
"""

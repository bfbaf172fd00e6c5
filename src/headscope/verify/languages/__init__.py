"""Does a language need its heads: losses on documents of every language without them.

`sets` reads which heads are a language's, `conditions` plans removals and runs the model, `layers`
plans the removal of whole layers; `evidence` and `matrix` work on stored losses of documents
alone, without the model.
"""

"""Does a language need its heads: losses on documents of every language without them.

`sets` reads which heads are a language's, `conditions` plans removals, of whole layers too, and
runs the model; `evidence` works on stored losses of documents alone, without the model.
"""

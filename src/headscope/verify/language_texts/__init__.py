"""Does a language need its heads: losses on documents of every language without them.

`conditions` reads which heads are a language's, plans removals, of whole layers too, and runs the
model; `evidence` works on stored losses of documents alone, without the model.
"""

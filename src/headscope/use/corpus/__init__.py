"""Rating a corpus of any size, on datatrove.

`files` finds and opens the files, `reading` surveys each once and gives its `records`, which know
how they are written; the `plan` says which records make which chunk and adds up what is done, the
`steps` of the pipeline rate. `rate_left` runs the steps, here or on a cluster.
"""

"""Rating a corpus of any size, on datatrove.

`files` finds and opens the files, `reading` surveys each once and gives its `records`; the `plan`
says which records make which chunk, the `steps` of the pipeline rate them, `writing` makes the
bytes of a chunk's file, and `tally` adds up. `executors` run the steps where `execution` says.
"""

"""Rating a corpus of any size, on datatrove.

`files` finds the files and `survey` reads each once; `reading` gives their `records`, the `steps`
of the pipeline rate them in `chunks`, which `writing` turns into files, and `tally` adds up what
there is to say of the whole. `executors` says where the steps run.
"""

"""Attention of single heads as it happens, without a matrix: where it peaks, what it weighs.

`peaks` and `weights` are the two contexts; `recording` is what they share. Beneath lie `plans`
(what a query may see, which rows and keys of a pass) and `scores` (arithmetic, in chunks);
`headscope.lm.interpose` sees the calls of attention kernels.
"""

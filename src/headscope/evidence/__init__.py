"""One table for every comparison of a model with and without heads."""

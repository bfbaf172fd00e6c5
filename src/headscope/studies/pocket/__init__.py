"""What the bundled model's world gives: sentence pairs, corpora, tasks, and the model itself."""

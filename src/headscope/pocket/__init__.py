"""The bundled model: its world, its training, its weights, and data of every kind made for it."""

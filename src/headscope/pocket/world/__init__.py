"""What the bundled model talks about: sentences as structures of concepts, in five languages."""

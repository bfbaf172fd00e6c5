"""Three papers as recipes: every table and figure of theirs as a named experiment."""

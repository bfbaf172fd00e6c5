"""Three papers as studies: every table and figure of theirs as a named experiment."""

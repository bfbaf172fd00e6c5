"""The parts of a report, one a module: each a function from a record to HTML."""

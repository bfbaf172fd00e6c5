"""What experiments cost: work in tokens, models as shapes, machines as rates."""

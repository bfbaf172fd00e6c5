"""What runs show, as pages of HTML and as plain text."""

"""Where a failure comes from: the same signature on every device that is here, and what follows from who is right."""

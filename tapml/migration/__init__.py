"""One operator at a time onto the target."""

"""Whether a candidate is right."""

"""The tests; a package, so that folders can share what they run."""

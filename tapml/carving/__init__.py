"""A reference run -> a suite."""

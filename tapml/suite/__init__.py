"""The suite: recorded calls, in memory and on disk."""

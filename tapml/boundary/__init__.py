"""Boundary cases: neighbours of a carved call that other runs meet sooner or later."""

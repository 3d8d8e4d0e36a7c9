"""Results for people and programs: terminal and JSON."""

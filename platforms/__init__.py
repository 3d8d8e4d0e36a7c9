"""One folder a platform; reached through tapml.platform only."""

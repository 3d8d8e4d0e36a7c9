"""Metal, on Apple's GPUs."""

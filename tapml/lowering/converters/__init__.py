"""Our own converters, where TVM's are missing or wrong."""

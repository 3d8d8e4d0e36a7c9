"""tapml"""

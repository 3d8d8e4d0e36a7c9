"""A failing operator as a directory that stands alone, and made smaller while the failure stays the same."""

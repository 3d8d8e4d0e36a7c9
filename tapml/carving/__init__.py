"""A reference run -> a suite.

Read ``carve.py`` (the verb) first, then ``recorder.py`` (what a run leaves behind) and ``interception.py`` (how each
call is seen; the hybrid executor stands on it as well).  ``portable.py`` names calls so that a suite means the same on
every platform, ``classify.py`` finds what kind of call each is, ``selection.py`` chooses what to keep, ``sources.py``
finds the program to run.
"""

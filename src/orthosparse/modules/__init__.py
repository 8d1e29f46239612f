"""Linear layers and convolutions that hold only their active weights, as blocks or as single entries.

The files are imported one by one: those with layers bring their operators along, and with them triton, which takes
longer to import than all of the library. Masks need the base class alone.
"""

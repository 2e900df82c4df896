"""A recorded node: the answers to an audit's questions in a directory, and the same audit of them anywhere.

`record` lets every question through to the host and notes the answer; `replay` answers from the notes alone. Nothing
of this package is loaded unless it is asked for.
"""

"""The library's verbs: what a program or a notebook calls."""

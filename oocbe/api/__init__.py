"""The library's verbs, for programs and notebooks."""

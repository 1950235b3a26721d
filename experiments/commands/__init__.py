"""The commands of the `chunksearch` program, one module each, and what they share.

Each command is a function from checked options to an `Outcome`. None of them parses arguments or ends the process.
"""

"""Searches made audible: candidates kept while searching, written as files, and one page to hear and compare them."""

"""The papers that Anabranch builds on: their claims beside what the library shows.

This package stays in the repository and is no part of the library.
"""

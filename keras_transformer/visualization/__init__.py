"""Attention and learning as pictures."""

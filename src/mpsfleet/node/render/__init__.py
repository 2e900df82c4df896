"""Rendering: a report or an outcome as text for a person or as JSON for a program."""

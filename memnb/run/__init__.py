"""Batches, profiles, the report and the command `memnb`; nothing below imports this package."""

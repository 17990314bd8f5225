"""Lowest layer: errors, knobs, targets, progress. Imports nothing of smelt above it."""

"""The rules that come with smelt, one file per rule or family."""

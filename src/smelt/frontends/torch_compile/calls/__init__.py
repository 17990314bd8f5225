"""What a call of a compiled graph needs around it: sizes, constants, devices."""

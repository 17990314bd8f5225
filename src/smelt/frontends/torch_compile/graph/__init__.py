"""What becomes of a graph before it is compiled: which nodes stay in torch, and where it is cut into parts."""

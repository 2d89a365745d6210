"""The style of every picture: figures, colours, lines, names. This room does not import runs; it needs matplotlib."""

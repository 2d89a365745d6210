"""How every picture is drawn: figures, colours, lines, names. This room knows nothing of runs; it needs matplotlib."""

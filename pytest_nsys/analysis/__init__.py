"""Pure measurements: windows, streams, stages, overlap. Nothing here knows a gate, a baseline or pytest."""

"""What can be measured of a window, and how? The registry says what there is, the table what came of it."""

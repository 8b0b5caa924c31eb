"""What can be measured in a window, and how? The registry lists the metrics, a table holds the results."""

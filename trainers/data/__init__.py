"""Data for tasks: reads files, divides examples among clients, generates quadratics and regressions."""

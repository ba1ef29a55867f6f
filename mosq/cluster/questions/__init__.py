"""Questions between the control planes of workers on different machines."""

"""Run attacks on a broker and measure what they cost its other clients."""

"""Bridges: when a link to another broker is opened, where to, and after which pause again. How is the data plane's."""

"""`mosq top`: a running broker and its clients, live on a terminal, or once as text or JSON."""

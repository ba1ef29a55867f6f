"""The dashboard: one page for people below /dashboard/, and its JSON API. Loaded only if a listener has
`http_dashboard true`. docs/dashboard.md describes it."""

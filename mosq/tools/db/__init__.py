"""Show the content of a store on disk: `mosq db check|dump|stats|export|import`. A starting broker never imports it."""

"""What is in a store on disk, for people: `mosq db check|dump|stats|export|import`. Never part of a broker's start."""

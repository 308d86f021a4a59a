// Scans length-prefixed string arrays (GGUF) without touching Python per string.

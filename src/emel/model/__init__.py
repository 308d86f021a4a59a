"""Model architectures, one file each, and the loader."""

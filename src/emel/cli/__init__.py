"""The `emel` command: one module per command, imported only when that command is asked for."""

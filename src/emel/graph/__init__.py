"""Graphs: operations, builder, rules, fusing, placement, and the plans the native library runs."""

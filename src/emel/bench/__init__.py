"""Benchmark suites, and the lanes EMEL is compared with."""

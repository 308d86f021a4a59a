// Byte-level BPE: vocabulary and merge loop.

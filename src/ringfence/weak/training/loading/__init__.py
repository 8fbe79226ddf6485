"""Samples as batches: from memory or from the disk, whole or in patches, and each rank its share."""

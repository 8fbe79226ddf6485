"""What a GPU gains: steps from CUDA graphs, augmentation in one kernel."""

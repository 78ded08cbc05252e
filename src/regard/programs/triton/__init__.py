"""Programs compiled by Triton for the GPU."""

"""A training configuration in, a measured one out."""

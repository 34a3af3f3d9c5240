"""The live view's room: what is sampled is kept, laid beside the training, judged and told."""

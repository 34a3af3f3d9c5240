"""`flatout watch`: samples GPUs and host, keeps a history, follows the training, explains slow periods."""

"""Which files this command's own output goes to: `flatout tune train.py > log.txt`.

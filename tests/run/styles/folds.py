"""Cross-validation: a new model and optimizer for each fold, a few steps each."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
scores = []
for fold in range(5):
    held_out = list(range(fold * 8, fold * 8 + 8))
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in DataLoader(Subset(data, [i for i in range(40) if i not in held_out]), batch_size=4, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(Subset(data, held_out), batch_size=4):
            scores.append(nn.functional.mse_loss(model(x), y).item())
    torch.save(model.state_dict(), f"fold-{fold}.pt")
print(scores)

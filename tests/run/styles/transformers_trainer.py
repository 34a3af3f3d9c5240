"""Transformers: Trainer with a tiny BERT made from its configuration, evaluation each epoch, without and with accumulation."""

import os

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed


class Texts(Dataset):
    def __init__(self, size):
        self.ids = torch.randint(0, 64, (size, 8), generator=torch.Generator().manual_seed(size))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[0] % 2}


class Told(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print({name: value for name, value in logs.items() if name.endswith("loss") or name in ("grad_norm", "learning_rate")})


def train(accumulate):
    set_seed(2)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=64,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    )
    arguments = TrainingArguments(
        "hf",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=accumulate,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=Texts(38), eval_dataset=Texts(24), callbacks=[Told()])
    trainer.pop_callback(__import__("transformers").PrinterCallback)
    trainer.train()
    print(trainer.state.global_step)
    torch.save(model.state_dict(), f"model-{accumulate}.pt")


if __name__ == "__main__":
    train(1)
    train(4)

"""Recurrent layers: ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``."""

"""The paper's tables and figures, reproduced at three sizes."""

"""Two steps of `NIO()` on the model families of timm and torchvision."""

"""Image data: digits, CIFAR, folders of images; batches and augmentation."""

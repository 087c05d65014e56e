"""Every start trained to the end, on small networks and all of CIFAR-10."""

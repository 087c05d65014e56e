"""The demo: two deep networks without normalization, initialized by Kaiming and by NIO."""

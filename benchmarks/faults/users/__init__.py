"""What a new user tries, from the public interface: every case has a promised end."""

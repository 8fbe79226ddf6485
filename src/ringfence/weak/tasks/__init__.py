"""What is learnt: images, what is known of them, and the constraints that follow."""

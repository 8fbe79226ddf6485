"""What is learnt: images, what is known of them, and the constraints that follow.

task says what every task is; boxes (any prepared set) and discs (the paper's synthetic images) are two.
"""

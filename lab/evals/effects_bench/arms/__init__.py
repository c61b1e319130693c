"""The programs of the arms, each as its own documentation has it."""

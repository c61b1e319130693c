"""What any program can ask and tell Replan; whatever asks the server raises RPCError where it does not answer."""

"""The decorators, the registry, and the tools that come with Replan; users import them from `replan`."""

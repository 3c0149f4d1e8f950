"""The tools of the agent: schemas, arguments, calls and the JSON that they answer."""

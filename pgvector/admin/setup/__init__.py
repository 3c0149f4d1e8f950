"""The set-up: questions in the terminal, the choices they lead to, and a test of the result."""

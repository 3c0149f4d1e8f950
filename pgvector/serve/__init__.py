"""The MCP server: the memory for any MCP client, over stdin and stdout or HTTP."""

"""serve, metrics: the page and the metrics of a memory, over HTTP and as a text file."""

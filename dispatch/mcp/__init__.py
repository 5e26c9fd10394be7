"""The REST API as tools of the Model Context Protocol: the same requests, answered in this process."""

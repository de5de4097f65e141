"""How an installation stood at an earlier minute, from what the store keeps."""

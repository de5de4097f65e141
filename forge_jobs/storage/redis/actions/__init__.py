"""Records of operators' actions."""

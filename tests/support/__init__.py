"""What tests share: inputs by table, oracles that share no code with the package, and ways to drive its programs."""

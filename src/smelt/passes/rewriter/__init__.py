"""What passes are made of: records, graph surgery, rules, and the choice among them."""

"""One GPU node: probe it, judge it, plan what to do and do it."""

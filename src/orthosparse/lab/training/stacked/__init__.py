"""Networks of one shape in one stack: stacked weights, one step for all, each as it would train alone."""

"""Networks of one shape in one stack: one step trains all of them, each as it would train by itself."""

"""The demo: the sampler at work, then one deep network trained from four starts, in about a minute on a laptop."""

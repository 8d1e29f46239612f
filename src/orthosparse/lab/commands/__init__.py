"""The commands of the `orthosparse` program, one file each."""

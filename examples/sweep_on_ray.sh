#!/bin/sh
# A sweep on a Ray cluster: every pair (experiment, seed) is a task, and the rows come back here.
#   sh examples/sweep_on_ray.sh auto contemporary --seeds 1,2,3 --gpus 0.25 --root /shared/data
#   sh examples/sweep_on_ray.sh "" dynamic --smoke          (a cluster on this machine only)
#
# On the first machine:  ray start --head --port 6379
# On each other one:     ray start --address FIRST:6379
# All of them need the package at the same path, and the data under the same --root.
set -eu

address=$1
item=$2
shift 2
orthosparse paper run "$item" --engine ray ${address:+--address "$address"} --store runs/sweep/results.sqlite "$@"

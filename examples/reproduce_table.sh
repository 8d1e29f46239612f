#!/bin/sh
# Run one item of the paper, then write it next to the paper's numbers:
#   sh examples/reproduce_table.sh efficiency
#   sh examples/reproduce_table.sh contemporary --only model=resnet32 --seeds 1 --root data
#   sh examples/reproduce_table.sh dynamic --smoke          (a tiny version: does everything work here?)
set -eu

item=$1
shift
store=runs/$item/results.sqlite

# Pairs (experiment, seed) that have a row are not run again: after an interruption, give the same command.
orthosparse paper run "$item" --store "$store" "$@"

case " $* " in *" --smoke "*) smoke=--smoke ;; *) smoke= ;; esac
orthosparse paper report --out "runs/$item/report.html" --store "$store" $smoke

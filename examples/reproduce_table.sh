#!/bin/sh
# Run one item of the paper, then write it beside the paper's numbers:
#   sh examples/reproduce_table.sh efficiency
#   sh examples/reproduce_table.sh contemporary --only model=resnet32 --seeds 1 --root data
#   sh examples/reproduce_table.sh dynamic --smoke          (a tiny version: does everything work here?)
set -eu

item=$1
shift
store=runs/$item/results.sqlite

# Pairs (experiment, seed) that the store has already are not run again: stop it, and start it with the same words.
orthosparse paper run "$item" --store "$store" "$@"

case " $* " in *" --smoke "*) smoke=--smoke ;; *) smoke= ;; esac
orthosparse paper report --out "runs/$item/report.html" --store "$store" $smoke

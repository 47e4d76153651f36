#!/bin/sh
# Gradient descent with momentum on a quadratic, in shell and awk: what Driftline needs of a program are files.
# study: examples/programs/descent.yaml
field() { # a value of the trial's document, which is JSON on one line
    sed -n 's/.*"'"$1"'": "\{0,1\}\([^",}]*\).*/\1/p' "$DRIFTLINE_TRIAL"
}

state="0 4 0" # round, position, velocity
resume=$(field resume)
[ "$resume" = null ] || state=$(cat "$resume/state")
saved=$(field checkpoints)

awk -v state="$state" -v rate="$(field rate)" -v momentum="$(field momentum)" -v last="$(field last)" '
    BEGIN {
        split(state, at, " ")
        round = at[1]; x = at[2]; velocity = at[3]
        if (round == 0) printf "{\"round\": 0, \"loss\": %.17g}\n", x * x
        while (round < last) {
            velocity = momentum * velocity - rate * 2 * x
            x += velocity
            round += 1
            printf "{\"round\": %d, \"loss\": %.17g, \"multiplications\": %d}\n", round, x * x, 3 * round
        }
        printf "%d %.17g %.17g\n", round, x, velocity > "/dev/stderr"
    }' >> "$(field reports)" 2> "$saved/state.draft"

# The state after the last round, for a trial that goes on beyond a rung: a folder that appears whole.
mkdir "$saved/draft"
mv "$saved/state.draft" "$saved/draft/state"
mv "$saved/draft" "$saved/$(field last)"

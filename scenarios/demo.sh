#!/bin/sh
# make demo: the shipped recording on an 88-CPU machine, under the wake-up path of Linux 2.6.37 and that of 6.0.
set -eu
contend=$1
cd "$(dirname "$0")/.."
scenario=scenarios/recorded-hackbench-88.toml
for path in remote-lock ttwu-queue-6.0; do
    echo "== $contend run $scenario --set wake_path=$path --out results/demo/$path"
    "$contend" run $scenario --set wake_path=$path --out results/demo/$path
    echo
done
echo "== $contend compare results/demo/remote-lock results/demo/ttwu-queue-6.0"
"$contend" compare results/demo/remote-lock results/demo/ttwu-queue-6.0

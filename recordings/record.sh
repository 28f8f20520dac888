#!/bin/bash
# Record the scheduler events of a command: record.sh OUT.txt.gz COMMAND [ARGUMENT]...
#
# As root, with tracefs and python3. The recording is made in a trace instance of its own, so nobody's tracing is
# disturbed. It keeps the command and its descendants; other tasks keep their switches (they take CPU time) under the
# name "other", and lose all else.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
out=$1
shift
tracing=/sys/kernel/tracing
instance=$tracing/instances/contend-$$
mkdir "$instance"
trap 'echo 0 > "$instance/tracing_on"; rmdir "$instance"' EXIT
echo mono > "$instance/trace_clock"
echo 32768 > "$instance/buffer_size_kb" # a CPU; hackbench writes some 12 MB/s
for event in switch waking wakeup wakeup_new migrate_task process_fork process_exec process_exit; do
    echo 1 > "$instance/events/sched/sched_$event/enable"
done
"$@" &
pid=$!
wait "$pid" || echo "the command failed; recorded all the same" >&2
echo 0 > "$instance/tracing_on"
python3 - "$instance/trace" "$pid" <<'PYTHON' | gzip -9 > "$out"
import re, sys

path, root = sys.argv[1], int(sys.argv[2])
lines = open(path, errors="replace").read().splitlines()
forked = re.compile(r"sched_process_fork: .*\bpid=(\d+) child_comm=.* child_pid=(\d+)")
tree = {root}
for line in lines:
    if (m := forked.search(line)) and int(m[1]) in tree:
        tree.add(int(m[2]))
header = re.compile(r"^( *)(.+)-(\d+)( +\[\d+\] .*?: )(sched_\w+: )(.*)$")
named = re.compile(r"((?:prev_|next_|child_)?comm=)(.*?)( (?:prev_|next_|child_)?pid=)(\d+)")


def other(m):
    name = m[2] if int(m[4]) in tree | {0} else "other"
    return m[1] + name + m[3] + m[4]


for line in lines:
    if line.startswith("#"):
        print(line)
        continue
    m = header.match(line)
    if not m:
        continue
    by, event, fields = int(m[3]), m[5], m[6]
    about = {int(p) for p in re.findall(r"pid=(\d+)", fields)}
    if not event.startswith("sched_switch") and not about & tree:
        continue
    comm = m[2] if by in tree | {0} else "other"
    print(f"{m[1]}{comm}-{by}{m[4]}{event}{named.sub(other, fields)}")
PYTHON
echo "$out: $(gzip -dc "$out" | grep -vc '^#') events, $(stat -c %s "$out") bytes" >&2

#!/bin/sh
# A PostgreSQL server and its benchmark: pgbench.sh CLIENTS TRANSACTIONS, in a directory with a server's data/ that has a
# database `bench` (pgbench -i). The server's tasks are the command's, too.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
"$bin/postgres" -D "$PWD/data" -k "$PWD" -c listen_addresses= -c fsync=off -c shared_buffers=32MB -c autovacuum=off > log 2>&1 &
server=$!
tries=0
until "$bin/pg_isready" -q -h "$PWD"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || exit 1
    sleep 0.05
done
"$bin/pgbench" -h "$PWD" -n -c "$1" -j 2 -t "$2" bench
kill -INT $server
wait $server

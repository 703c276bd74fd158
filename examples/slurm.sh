#!/bin/bash
#SBATCH --job-name=oocbe --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --mem=32G --time=04:00:00
#SBATCH --signal=B:TERM@120
# One command over the nodes of a SLURM job: sbatch --nodes=4 slurm.sh oocbe solve FILE, or slurm.sh python join.py.
# The first node runs the command and a scheduler; every node runs a worker for each task of the job. A later job with
# the same --job-name resumes the run.
set -euo pipefail
umask 077
run=${RUN_FOLDER:-$SLURM_SUBMIT_DIR/$SLURM_JOB_NAME-run} # on a file system that all nodes share
port=${SCHEDULER_PORT:-$((20000 + SLURM_JOB_ID % 10000))} # differs between jobs, which may share a node
address=tls://$(hostname):$port
own=$run/job-$SLURM_JOB_ID
mkdir -p "$own"
trap 'rm -rf "$own"' EXIT

# A connection to the scheduler can run code there. TLS restricts connections to holders of this job's key.
key=$own/key.pem certificate=$own/certificate.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=oocbe \
  -keyout "$key" -out "$certificate" 2> /dev/null
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$certificate
for who in SCHEDULER WORKER CLIENT; do
  export "DASK_DISTRIBUTED__COMM__TLS__${who}__KEY=$key" "DASK_DISTRIBUTED__COMM__TLS__${who}__CERT=$certificate"
done

export DASK_LOGGING__DISTRIBUTED=warning OOCBE_THREADS=${SLURM_CPUS_PER_TASK:-1}
# The scheduler's web pages are not encrypted: they are switched off, and their port is on loopback.
DASK_TEMPORARY_DIRECTORY=$own DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES='[]' dask scheduler --protocol tls \
  --host "$(hostname)" --port "$port" --no-dashboard --dashboard-address 127.0.0.1:0 &
scheduler=$!
srun python -P -m oocbe.execution.cluster.worker "$address" &
workers=$!

# Address of the workers: oocbe's commands and functions read OOCBE_CLUSTER, distributed.Client() the last variable.
export OOCBE_CLUSTER=$address OOCBE_WORKDIR=$run/work OOCBE_RESUME=${OOCBE_RESUME:-on} DASK_SCHEDULER_ADDRESS=$address
"$@" &
command=$!

ends_within() { # seconds, process id
  for ((tenth = 0; tenth < 10 * $1; tenth++)); do
    kill -0 "$2" 2> /dev/null || return 0
    sleep 0.1
  done
  return 1
}

# On a signal, the command prints its results so far and ends; then the scheduler ends, and the workers with it.
# If the job is cancelled, SLURM has already signalled the command; a second signal would cut its output short.
trap 'ends_within 5 "$command" || kill "$command"' TERM
code=0
wait "$command" || code=$?
while kill -0 "$command" 2> /dev/null; do
  code=0
  wait "$command" || code=$?
done
trap '' TERM
kill "$scheduler" 2> /dev/null || true
ends_within 5 "$workers" || kill "$workers"
wait
exit "$code"

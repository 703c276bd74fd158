#!/bin/bash
#SBATCH --job-name=oocbe --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --time=04:00:00
# One oocbe command over the nodes of a SLURM job: sbatch --nodes=4 slurm.sh solve FILE --task count
# The first node runs the command and the scheduler; every node runs a worker for each task of the job.
set -euo pipefail
umask 077
run=${RUN_FOLDER:-$SLURM_SUBMIT_DIR/oocbe-$SLURM_JOB_ID} # on a file system that all nodes see
address=tls://$(hostname):${SCHEDULER_PORT:-8786}
mkdir -p "$run/certificates"

# Whoever reaches the scheduler's port runs code there: only holders of this job's key may.
key=$run/certificates/key.pem certificate=$run/certificates/certificate.pem
openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=oocbe -keyout "$key" -out "$certificate" 2> /dev/null
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$certificate
for who in SCHEDULER WORKER CLIENT; do
  export "DASK_DISTRIBUTED__COMM__TLS__${who}__KEY=$key" "DASK_DISTRIBUTED__COMM__TLS__${who}__CERT=$certificate"
done

export DASK_LOGGING__DISTRIBUTED=warning OOCBE_THREADS=${SLURM_CPUS_PER_TASK:-1}
dask scheduler --protocol tls --host "$(hostname)" --port "${SCHEDULER_PORT:-8786}" --no-dashboard &
srun python -m oocbe.cluster.worker "$address" &
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$run/certificates"' EXIT
oocbe "$@" --cluster "$address" --workdir "$run/work"

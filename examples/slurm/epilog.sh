#!/bin/sh
# Epilog= of slurm.conf: slurmd runs it as root once all of a job's processes on the node have ended.
# Its GPUs get the driver's default limit back.
for gpu in $(nvidia-smi ${SLURM_JOB_GPUS:+-i "$SLURM_JOB_GPUS"} --query-gpu=index --format=csv,noheader); do
    watts=$(nvidia-smi -i "$gpu" --query-gpu=power.default_limit --format=csv,noheader,nounits)
    nvidia-smi -i "$gpu" -pl "$watts" > /dev/null ||
        logger -t carbontui "job $SLURM_JOB_ID: GPU $gpu has not got its limit of $watts W back"
done
exit 0 # an epilog that fails drains the node

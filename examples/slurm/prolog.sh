#!/bin/sh
# Prolog= of slurm.conf: slurmd runs it as root before a job's first process on the node.
# The job's GPUs get the site's power limit: watts in /etc/carbontui/gpu-limit; without that file none.
# A user's own limits (carbontui, through capd) can then only be lower.
read -r watts < /etc/carbontui/gpu-limit || exit 0
nvidia-smi ${SLURM_JOB_GPUS:+-i "$SLURM_JOB_GPUS"} -pl "$watts" > /dev/null ||
    logger -t carbontui "job $SLURM_JOB_ID: GPUs ${SLURM_JOB_GPUS:-of this node} have no limit of $watts W"
exit 0 # a prolog that fails drains the node

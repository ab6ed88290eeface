#!/bin/bash
# A sweep on the nodes of a Slurm job: sbatch slurm.sh; docs/cluster.md.
#SBATCH --nodes=4 --ntasks-per-node=1 --exclusive --gpus-per-node=8
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" -- \
    env RAY_ADDRESS="$head:6379" bakeoff --runs "$SLURM_SUBMIT_DIR/runs" sweep wm image --on ray

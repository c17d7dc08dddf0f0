# jobscripts/launcher.sh: what mpirun needs to start ranks on one machine, of Open MPI 4 and 5 alike. Scripts source it, and so do tests,
# those in Python by tests/mpirun.sh.

# Root may start ranks, there may be more of them than cores, and threads stay where the system puts them. Open MPI 5's launcher is
# PRRTE, which reads names of its own.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
# Open MPI 5 looks for routes between the addresses of this machine, and complains on every rank where there is none.
export OMPI_MCA_reachable=weighted

# ranks_share_cores: a rank that waits leaves its core to another one.
ranks_share_cores() { export OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=passive; }

"""Join two Parquet files larger than memory with the workers of a job: sbatch --nodes=4 slurm.sh python join.py."""

from distributed import Client

import oocbe

limits = {"overwrite": True}  # so that a job can be submitted again
domains = oocbe.common_domains("sales.parquet", "rents.parquet", values="gain")
sales = oocbe.StoredTable.from_parquet("sales.parquet", "sales.table", "gain", domains=domains, **limits)
rents = oocbe.StoredTable.from_parquet("rents.parquet", "rents.table", "gain", domains=domains, **limits)
with Client() as workers:  # at the address set by slurm.sh
    best = oocbe.join_maximise(sales, rents, "day", output="best.table", client=workers, **limits)
best.to_parquet("best.parquet", "gain", **limits)

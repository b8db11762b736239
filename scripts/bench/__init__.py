"""What it2nb costs, measured: ``make bench``. One file a measure, one table from one run."""

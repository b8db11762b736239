"""The Jupyter side: magics, the background run, waiting, the panel."""

"""Settings to begin from, a YAML file each, named by what they are for; the first line of a file says more."""

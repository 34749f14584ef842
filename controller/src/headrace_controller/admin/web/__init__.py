"""The operators' page: packaged files, served as they are."""

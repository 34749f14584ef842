"""Generated stubs of the wire; `make proto` writes them from protos/."""

"""The programs under test as subprocesses: started, awaited, stopped and accounted for."""

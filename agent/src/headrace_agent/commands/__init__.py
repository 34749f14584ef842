"""The operator's commands: look at what the agent would take, and say what is wrong and how to mend it.

    read       one page, from a file, a URL or stdin
    check      every source of a config, for real
    discover   what runs on this host, and a config for it

Each `command` module declares its options and nothing else, so that the program starts quickly;
what a command needs is imported when it runs.
"""

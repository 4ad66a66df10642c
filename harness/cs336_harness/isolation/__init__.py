"""The subject is judged in a process of its own, so that whatever it does there ends in one line here.

:class:`~cs336_harness.isolation.trial.Trial` is the way in for the command line, pytest and a program. It asks
*workers* for a *judge*: a server with one thread, torch and every check loaded, forks one for each job; where there is
no fork, a fresh process is the judge. The judge imports the subject, runs the checks and tells events, one JSON object
per line. The *supervisor* hears them: when a judge takes too long or ends before it is through, it says which check
that was, and has another judge go on with the rest.
"""

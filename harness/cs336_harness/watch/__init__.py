"""``cs336 watch``: judge a subject again at each save, with torch imported once.

The *session* talks to the person. It forks a *server*, which has one thread, keeps torch and every check loaded, and
never imports the subject. The server forks *judges* for each job: they import the subject, share the checks, and end.
Where there is no fork, a fresh process that has torch loaded waits for the next job.
"""

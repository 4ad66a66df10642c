"""``cs336 watch``: judge a subject again at each save, with torch imported once.

The *session* talks to the person. It is told of *saves* and *keys*, and has :mod:`cs336_harness.isolation` judge: a
server that never imports the subject forks *judges* for each save, which share the checks; while it is idle it works
a little *ahead*.
"""

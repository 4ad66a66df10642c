"""How a verdict looks: one HTML page of it that needs nothing else, with the decoder drawn and the fault in it.

A page is made of the JSON result alone (docs/DESIGN.md, "Outcomes and exit status"): *parts* says which checks are
about which part of a decoder, *drawing* where each part stands, *charts* what the numbers of a failure look like, and
*page* puts them together. *tally* counts the parts of a whole class, for the same drawing. *live* serves the page again
at each save; *plots* draws influence maps as PNG. Every text in a page may be somebody else's: templates escape all of
it, and the page's policy lets nothing be loaded and no other script run.
"""

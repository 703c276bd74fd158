"""What problems, plans, results and tables look like in a notebook, a report, and a picture.

Nothing here knows a problem or a result: the classes that are shown hand over facts and arrays.
"""

"""Representation of problems, plans, results and tables in notebooks, reports and pictures.

Independent of the classes shown, which provide facts and arrays.
"""

"""Golden runs: a refactoring leaves every answer as it was.

A record has an entry for each run: what the public names and the command line return for small seeded problems of all
families, for the files of ``examples/`` and, where they are present, for some real instances. Modules of the package
other than the public ones are not imported, so that a record outlives moved modules and changed internal names. Times,
paths, versions and properties of the machine are left out; floats are recorded exactly.

======================  =================================================================
``problems``            seeded problems, made through the library
``texts``               a small file of each format
``solving``             solves, plans, bounds, tasks, propagation, verification
``operators``           the algebra of tables, in memory, packed, complete, stored
``trees``, ``agents``   junction trees; distributed problems
``conversions``         every problem in every format
``commands``            the command line, certificates, resumed runs
``names``               public names and options
======================  =================================================================
"""

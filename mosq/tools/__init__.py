"""Tools for operators that work beside a broker: `bench`, `ctl`, `db`, `doctor`, and the tables that they print.

Importing this package loads nothing. A starting broker imports none of these modules.
"""

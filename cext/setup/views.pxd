# Views of Python's text and bytes.
from cext.base.view cimport View

cdef View view_keep(list keep, value)

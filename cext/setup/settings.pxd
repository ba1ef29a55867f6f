# Fill Settings from a dictionary of option names and values.
from cext.broker.core.settings cimport Settings

# Fill t, which is zero. Raises ValueError (names the setting) or MemoryError. The caller calls settings_free(t) in each case.
cdef int settings_read(Settings* t, dict s, list keep) except -1
cdef void settings_free(Settings* t) noexcept nogil

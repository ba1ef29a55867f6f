# A dictionary of option names and values -> Settings.
from cext.broker.core.settings cimport Settings

# Fills t, which is zero. Raises ValueError (names the setting), MemoryError; settings_free(t) is due in each case.
cdef int settings_read(Settings* t, dict s, list keep) except -1
cdef void settings_free(Settings* t) noexcept nogil

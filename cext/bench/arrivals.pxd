# The bytes that arrive at a client of the load.
from cext.bench.load cimport Client, Load

cdef void client_read(Load* g, Client* c) noexcept nogil

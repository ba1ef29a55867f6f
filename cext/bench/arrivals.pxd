# What a client's socket brings.
from cext.bench.load cimport Client, Load

cdef void client_read(Load* g, Client* c) noexcept nogil

# What the control plane's answers lead to.
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker

# A slice of the answers that have come; 1: there may be more.
cdef bint answers_serve(Broker* b) noexcept nogil
cdef void auth_request_timer(Broker* b, Timer* t) noexcept nogil
cdef void auth_requests_forget(Broker* b) noexcept nogil        # at the end: all of them

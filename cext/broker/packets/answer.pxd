# Process the answers of the control plane.
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker

# Process a slice of the answers that have arrived. Returns 1 if there may be more.
cdef bint answers_serve(Broker* b) noexcept nogil
cdef void auth_request_timer(Broker* b, Timer* t) noexcept nogil
cdef void auth_requests_forget(Broker* b) noexcept nogil        # free all auth requests at the end

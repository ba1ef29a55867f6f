# Wills that wait for a plugin, in the store. See waiting_wills.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, RestoredWill

# The link to the restored will with this number, or the end of the list, where a new one belongs.
cdef RestoredWill** restored_will_at(Durable* t, uint64_t number) noexcept nogil
cdef void restored_will_drop(Broker* b, RestoredWill** at) noexcept nogil       # no-op at the end of the list
cdef void restored_wills_forget(Broker* b) noexcept nogil               # the store ends
cdef void waiting_wills_attach(Broker* b) noexcept nogil                # an empty store is taken into use while wills wait
cdef void waiting_wills_detach(Broker* b) noexcept nogil                # undo that

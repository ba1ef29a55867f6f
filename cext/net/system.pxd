# The system calls of the loop: epoll, sockets, descriptors.
from libc.stdint cimport uint8_t, uint16_t, uint32_t

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int ep, int op, int fd, epoll_event* e)
    int epoll_wait(int ep, epoll_event* events, int n, int timeout_ms)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLEXCLUSIVE

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t readv(int fd, const iovec* iov, int n)
    ssize_t writev(int fd, const iovec* iov, int n)

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        uint16_t sa_family
    struct sockaddr_storage:
        uint16_t ss_family
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    int socket(int family, int type, int protocol)
    int connect(int fd, const sockaddr* a, unsigned int n)
    int bind(int fd, const sockaddr* a, unsigned int n)
    ssize_t recv(int fd, void* p, size_t n, int flags)
    ssize_t send(int fd, const void* p, size_t n, int flags)
    ssize_t sendmsg(int fd, const msghdr* m, int flags)
    int shutdown(int fd, int how)
    int getsockopt(int fd, int level, int name, void* value, unsigned int* n)
    int setsockopt(int fd, int level, int name, const void* value, unsigned int n)
    int AF_INET, AF_INET6, AF_UNIX, SOCK_STREAM, SOL_SOCKET, SO_ERROR, SO_KEEPALIVE
    int MSG_NOSIGNAL, MSG_PEEK, MSG_MORE, SHUT_WR

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    extern int accept4(int, struct sockaddr *, socklen_t *, int);
    """
    int accept4(int fd, sockaddr* a, unsigned int* n, int flags)
    int SOCK_NONBLOCK, SOCK_CLOEXEC

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        uint8_t s6_addr[16]
    struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_port
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    uint16_t ntohs(uint16_t v)
    uint16_t htons(uint16_t v)
    int IPPROTO_TCP, IPPROTO_IP

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int O_RDONLY, O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    ssize_t c_read "read"(int fd, void* p, size_t n)
    ssize_t c_write "write"(int fd, const void* p, size_t n)

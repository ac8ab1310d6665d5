// System calls of the C library, as simulated threads see them (kernel.h). A call from another
// thread, or with a real descriptor, goes to the C library.
//
// The linker finds these definitions before those of the C library, also for calls from shared
// libraries (libstdc++'s threads and condition variables).
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "sim/kernel.h"

namespace {

using weft::sim::Kernel;
using weft::sim::kFirstPid;
using weft::sim::kMs;
using weft::sim::kUs;
using weft::test::SimTask;

// The kernel, if the caller is a simulated thread; every call takes a moment.
Kernel* Inside() {
    Kernel* kernel = Kernel::Current();
    if (kernel != nullptr) kernel->Tick();
    return kernel;
}

// As Inside, if the descriptor is a simulated one.
Kernel* InsideWith(int fd) {
    return fd >= weft::sim::kFirstFd ? Inside() : nullptr;
}

// As Inside, if the file, or the descriptor's, is on the disk.
template <typename FileName>
Kernel* OnDisk(FileName file) {
    Kernel* kernel = Kernel::Current();
    return kernel != nullptr && kernel->OnDisk(file) ? Inside() : nullptr;
}

template <typename Function>
Function* Next(const char* name, Function*) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// The C library's function of that name.
#define REAL(name)                                      \
    ([]() {                                             \
        static auto* const real = Next(#name, &::name); \
        return real;                                    \
    }())

int64_t ToNs(const timespec& time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

sockaddr_in ToSocket(const weft::sim::Address& address) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(address.port);
    out.sin_addr.s_addr = htonl(address.ip);
    return out;
}

int GetName(const weft::sim::Address& from, sockaddr* address, socklen_t* length) {
    const sockaddr_in name = ToSocket(from);
    std::memcpy(address, &name, std::min<size_t>(*length, sizeof name));
    *length = sizeof name;
    return 0;
}

int Failed(int error) {
    errno = error;
    return -1;
}

// IPv6 is not simulated, except "::" for "every address".
bool ToV4(const sockaddr* address, sockaddr_in& out) {
    if (address->sa_family == AF_INET) {
        std::memcpy(&out, address, sizeof out);
        return true;
    }
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    if (!IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) return false;
    out = {};
    out.sin_family = AF_INET;
    out.sin_port = v6.sin6_port;
    return true;
}

// ioctl(2), prctl(2) and others are not replaced: they send nothing to other processes.

}  // namespace

extern "C" {

// ---- Descriptors --------------------------------------------------------------------------------

int poll(pollfd* fds, nfds_t count, int ms) {
    Kernel* kernel = Inside();
    return kernel != nullptr ? kernel->Poll(fds, count, ms) : REAL(poll)(fds, count, ms);
}

int close(int fd) {
    if (Kernel* kernel = InsideWith(fd); kernel != nullptr) return kernel->Close(fd);
    if (Kernel* kernel = Kernel::Current(); kernel != nullptr) kernel->NoteClosed(fd);
    return REAL(close)(fd);
}

int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void* argument = va_arg(more, void*);
    va_end(more);
    if (Kernel* kernel = InsideWith(fd); kernel != nullptr) {
        return kernel->Get(fd) != nullptr ? 0 : Failed(EBADF);
    }
    return REAL(fcntl)(fd, command, argument);
}

int ioctl(int fd, unsigned long request, ...) {
    va_list more;
    va_start(more, request);
    void* argument = va_arg(more, void*);
    va_end(more);
    if (InsideWith(fd) != nullptr) return Failed(EINVAL);
    return REAL(ioctl)(fd, request, argument);
}

int eventfd(unsigned count, int flags) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(eventfd)(count, flags);
    auto event = std::make_shared<weft::sim::Event>();
    event->count = count;
    return kernel->Add(std::move(event));
}

int signalfd(int fd, const sigset_t* wanted, int flags) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(signalfd)(fd, wanted, flags);
    auto signals = std::make_shared<weft::sim::Signals>();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
        if (::sigismember(wanted, signal) != 1) continue;
        signals->wanted.insert(signal);
        if (kernel->process().undelivered.erase(signal) > 0) signals->pending.push_back(signal);
    }
    return kernel->Add(std::move(signals));
}

ssize_t read(int fd, void* out, size_t size) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(read)(fd, out, size);
    if (const auto event = kernel->GetAs<weft::sim::Event>(fd); event != nullptr) {
        if (event->count == 0) return Failed(EAGAIN);
        std::memcpy(out, &event->count, sizeof event->count);
        event->count = 0;
        return sizeof event->count;
    }
    if (const auto signals = kernel->GetAs<weft::sim::Signals>(fd); signals != nullptr) {
        if (signals->pending.empty()) return Failed(EAGAIN);
        signalfd_siginfo info{};
        info.ssi_signo = static_cast<uint32_t>(signals->pending.front());
        signals->pending.pop_front();
        std::memcpy(out, &info, sizeof info);
        return sizeof info;
    }
    if (const auto pipe = kernel->GetAs<weft::sim::Pipe>(fd); pipe != nullptr) {
        const size_t got = std::min(size, pipe->bytes.size());
        std::memcpy(out, pipe->bytes.data(), got);
        pipe->bytes.erase(0, got);
        return static_cast<ssize_t>(got);
    }
    const iovec part{out, size};
    return kernel->Receive(fd, &part, 1, 0);
}

ssize_t write(int fd, const void* data, size_t size) {
    Kernel* kernel = Inside();
    if (kernel != nullptr && fd == STDERR_FILENO) {
        kernel->process().err.append(static_cast<const char*>(data), size);
        return static_cast<ssize_t>(size);
    }
    if (kernel != nullptr && kernel->OnDisk(fd)) {
        const size_t room = kernel->DiskRoom(size);
        return room > 0 ? REAL(write)(fd, data, room) : -1;
    }
    if (kernel == nullptr || !kernel->Owns(fd)) return REAL(write)(fd, data, size);
    if (const auto event = kernel->GetAs<weft::sim::Event>(fd); event != nullptr) {
        uint64_t more;
        std::memcpy(&more, data, sizeof more);
        event->count += more;
        kernel->Changed(*event);
        return sizeof more;
    }
    const iovec part{const_cast<void*>(data), size};
    return kernel->Send(fd, &part, 1);
}

// ---- Files of the disk --------------------------------------------------------------------------

int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = va_arg(more, mode_t);
    va_end(more);
    Kernel* kernel = OnDisk(path);
    if (kernel == nullptr) return REAL(open)(path, flags, mode);
    const int error = (flags & O_CREAT) != 0 ? kernel->DiskFault(false) : 0;
    if (error != 0) return Failed(error);
    const int fd = REAL(open)(path, flags, mode);
    if (fd >= 0) kernel->NoteOpened(fd);
    return fd;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
    Kernel* kernel = OnDisk(fd);
    if (kernel == nullptr) return REAL(pwrite)(fd, data, size, offset);
    const size_t room = kernel->DiskRoom(size);
    return room > 0 ? REAL(pwrite)(fd, data, room, offset) : -1;
}

// (Nobody cuts the power of the real disk, so nothing waits for it.)
int fsync(int fd) {
    Kernel* kernel = OnDisk(fd);
    if (kernel == nullptr) return REAL(fsync)(fd);
    // A file system that allocates late finds now that the disk is full.
    const int error = kernel->DiskFault(kernel->random().OneIn(4));
    return error != 0 ? Failed(error) : 0;
}

int sync_file_range(int fd, off_t offset, off_t size, unsigned flags) {
    return OnDisk(fd) != nullptr ? 0 : REAL(sync_file_range)(fd, offset, size, flags);
}

// Some file systems cannot reserve space.
int fallocate(int fd, int mode, off_t offset, off_t size) {
    Kernel* kernel = OnDisk(fd);
    if (kernel == nullptr) return REAL(fallocate)(fd, mode, offset, size);
    if (kernel->random().OneIn(2)) return Failed(EOPNOTSUPP);
    const int error = kernel->DiskFault(true);
    return error != 0 ? Failed(error) : REAL(fallocate)(fd, mode, offset, size);
}

// A full disk may still report free space: others may fill it right after.
int statvfs(const char* path, struct statvfs* info) noexcept {
    const int status = REAL(statvfs)(path, info);
    Kernel* kernel = OnDisk(path);
    if (kernel == nullptr) return status;
    info->f_bavail = kernel->DiskFreeBytes() / info->f_frsize;
    return status;
}

int mkdir(const char* path, mode_t mode) noexcept {
    Kernel* kernel = OnDisk(path);
    const int error = kernel != nullptr ? kernel->DiskFault(kernel->random().OneIn(4)) : 0;
    return error != 0 ? Failed(error) : REAL(mkdir)(path, mode);
}

int rename(const char* from, const char* to) noexcept {
    Kernel* kernel = OnDisk(to);
    const int error = kernel != nullptr ? kernel->DiskFault(false) : 0;
    if (error != 0) return Failed(error);
    const int status = REAL(rename)(from, to);
    if (kernel != nullptr && status == 0) kernel->NoteRenamed(to);
    return status;
}

// ---- Sockets ------------------------------------------------------------------------------------

int socket(int domain, int type, int protocol) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(socket)(domain, type, protocol);
    if ((domain != AF_INET && domain != AF_INET6) || (type & SOCK_STREAM) == 0) {
        return Failed(EAFNOSUPPORT);
    }
    auto stream = std::make_shared<weft::sim::Stream>();
    stream->host = kernel->process().host;
    return kernel->Add(std::move(stream));
}

int bind(int fd, const sockaddr* address, socklen_t length) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(bind)(fd, address, length);
    sockaddr_in v4;
    return ToV4(address, v4) ? kernel->Bind(fd, v4) : Failed(EADDRNOTAVAIL);
}

int listen(int fd, int backlog) {
    Kernel* kernel = InsideWith(fd);
    return kernel != nullptr ? kernel->Listen(fd) : REAL(listen)(fd, backlog);
}

int connect(int fd, const sockaddr* address, socklen_t length) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(connect)(fd, address, length);
    sockaddr_in v4;
    return ToV4(address, v4) ? kernel->Connect(fd, v4) : Failed(ENETUNREACH);
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
    Kernel* kernel = InsideWith(fd);
    return kernel != nullptr ? kernel->Accept(fd) : REAL(accept4)(fd, address, length, flags);
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(send)(fd, data, size, flags);
    const iovec part{const_cast<void*>(data), size};
    return kernel->Send(fd, &part, 1);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(sendmsg)(fd, message, flags);
    return kernel->Send(fd, message->msg_iov, message->msg_iovlen);
}

ssize_t recv(int fd, void* out, size_t size, int flags) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(recv)(fd, out, size, flags);
    const iovec part{out, size};
    return kernel->Receive(fd, &part, 1, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(recvmsg)(fd, message, flags);
    return kernel->Receive(fd, message->msg_iov, message->msg_iovlen, flags);
}

int shutdown(int fd, int how) {
    Kernel* kernel = InsideWith(fd);
    return kernel != nullptr ? kernel->Shutdown(fd) : REAL(shutdown)(fd, how);
}

int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(setsockopt)(fd, level, name, value, length);
    const auto stream = kernel->GetAs<weft::sim::Stream>(fd);
    if (level == SOL_SOCKET && name == SO_LINGER && stream != nullptr) {
        linger set;
        std::memcpy(&set, value, sizeof set);
        stream->resets = set.l_onoff == 1 && set.l_linger == 0;
    }
    if (level == SOL_SOCKET && name == SO_KEEPALIVE && stream != nullptr && !stream->keeps_alive) {
        stream->keeps_alive = true;
        kernel->KeepAlive(stream);
    }
    return 0;
}

int getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(getsockopt)(fd, level, name, value, length);
    const auto stream = kernel->GetAs<weft::sim::Stream>(fd);
    if (level != SOL_SOCKET || name != SO_ERROR || stream == nullptr) return Failed(ENOPROTOOPT);
    std::memcpy(value, &stream->error, sizeof stream->error);
    return 0;
}

int getsockname(int fd, sockaddr* address, socklen_t* length) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(getsockname)(fd, address, length);
    if (const auto stream = kernel->GetAs<weft::sim::Stream>(fd); stream != nullptr) {
        return GetName(stream->local, address, length);
    }
    const auto listener = kernel->GetAs<weft::sim::Listener>(fd);
    return listener != nullptr ? GetName(listener->local, address, length) : Failed(ENOTSOCK);
}

int getpeername(int fd, sockaddr* address, socklen_t* length) {
    Kernel* kernel = InsideWith(fd);
    if (kernel == nullptr) return REAL(getpeername)(fd, address, length);
    const auto stream = kernel->GetAs<weft::sim::Stream>(fd);
    if (stream == nullptr || stream->state != weft::sim::Stream::State::kOpen) {
        return Failed(ENOTCONN);
    }
    return GetName(stream->remote, address, length);
}

// A host has its loopback and one interface per cable.
int getifaddrs(ifaddrs** first) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(getifaddrs)(first);
    struct Entry {
        ifaddrs about{};
        sockaddr_in address{}, mask{};
        char name[16] = "lo";
    };
    static std::array<Entry, 1 + weft::sim::kMostCables> entries;
    entries = {};
    const int cables = kernel->cables();
    for (int i = 0; i <= cables; ++i) {
        const bool loops = i == 0;
        Entry& entry = entries[static_cast<size_t>(i)];
        if (!loops) std::snprintf(entry.name, sizeof entry.name, "sim%d", i - 1);
        const int host = kernel->process().host;
        entry.address = ToSocket({loops ? INADDR_LOOPBACK : Kernel::IpOf(host, i - 1), 0});
        entry.mask = ToSocket({loops ? 0xff000000u : 0xffffff00u, 0});
        entry.about.ifa_name = entry.name;
        entry.about.ifa_flags = IFF_UP | IFF_RUNNING | (loops ? IFF_LOOPBACK : IFF_MULTICAST);
        entry.about.ifa_addr = reinterpret_cast<sockaddr*>(&entry.address);
        entry.about.ifa_netmask = reinterpret_cast<sockaddr*>(&entry.mask);
        entry.about.ifa_next = i < cables ? &entries[static_cast<size_t>(i) + 1].about : nullptr;
    }
    *first = &entries[0].about;
    return 0;
}

void freeifaddrs(ifaddrs* first) {
    if (Inside() == nullptr) REAL(freeifaddrs)(first);
}

// The second cable may be the faster one, and no host keeps time by the processor's counter. (Only
// std::ifstream opens files by this name.)
FILE* fopen64(const char* path, const char* mode) {
    const Kernel* kernel = Kernel::Current();
    if (kernel != nullptr && std::strcmp(path, "/sys/class/net/sim1/speed") == 0) {
        path = kernel->speed_file.c_str();
    }
    if (kernel != nullptr && std::strstr(path, "/current_clocksource") != nullptr) path = "";
    return REAL(fopen64)(path, mode);
}

// Each host has a network namespace of its own.
ssize_t readlink(const char* path, char* out, size_t size) {
    Kernel* kernel = Inside();
    if (kernel == nullptr || std::strcmp(path, "/proc/self/ns/net") != 0) {
        return REAL(readlink)(path, out, size);
    }
    const std::string name = "net:[sim" + std::to_string(kernel->process().host) + "]";
    std::memcpy(out, name.data(), std::min(size, name.size()));
    return static_cast<ssize_t>(std::min(size, name.size()));
}

int gethostname(char* out, size_t size) noexcept {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(gethostname)(out, size);
    std::snprintf(out, size, "sim%d", kernel->process().host);
    return 0;
}

// ---- Time and chance ----------------------------------------------------------------------------

int clock_gettime(clockid_t clock, timespec* time) {
    Kernel* kernel = Kernel::Current();
    if (kernel == nullptr) return REAL(clock_gettime)(clock, time);
    const int64_t now = kernel->ReadClock();
    *time = {now / 1'000'000'000, now % 1'000'000'000};
    return 0;
}

time_t time(time_t* out) noexcept {
    Kernel* kernel = Kernel::Current();
    if (kernel == nullptr) return REAL(time)(out);
    const time_t seconds = kernel->ReadClock() / 1'000'000'000;
    if (out != nullptr) *out = seconds;
    return seconds;
}

int nanosleep(const timespec* time, timespec* left) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(nanosleep)(time, left);
    kernel->Sleep(ToNs(*time));
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(clock_nanosleep)(clock, flags, time, left);
    const int64_t now = (flags & TIMER_ABSTIME) != 0 ? kernel->now() : 0;
    kernel->Sleep(std::max<int64_t>(0, ToNs(*time) - now));
    return 0;
}

int usleep(useconds_t us) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(usleep)(us);
    kernel->Sleep(us * kUs);
    return 0;
}

int sched_yield() {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(sched_yield)();
    kernel->Sleep(100 * kUs);
    return 0;
}

ssize_t getrandom(void* out, size_t size, unsigned flags) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(getrandom)(out, size, flags);
    auto* bytes = static_cast<uint8_t*>(out);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(kernel->random().Next());
    return static_cast<ssize_t>(size);
}

// Now and then, another thread has taken the core from this one.
int getrusage(__rusage_who_t who, rusage* usage) noexcept {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(getrusage)(who, usage);
    long& taken = kernel->thread().times_preempted;
    if (kernel->random().OneIn(4)) ++taken;
    *usage = {};
    usage->ru_nivcsw = taken;
    return 0;
}

// ---- Processes ----------------------------------------------------------------------------------

int kill(pid_t pid, int signal) noexcept {
    Kernel* kernel = pid >= kFirstPid ? Inside() : nullptr;
    return kernel != nullptr ? kernel->Kill(pid, signal) : REAL(kill)(pid, signal);
}

pid_t waitpid(pid_t pid, int* status, int flags) {
    Kernel* kernel = pid >= kFirstPid ? Inside() : nullptr;
    return kernel != nullptr ? kernel->WaitPid(pid, status, flags)
                             : REAL(waitpid)(pid, status, flags);
}

void _exit(int status) {
    if (Kernel* kernel = Inside(); kernel != nullptr) kernel->Exit(status);
    REAL(_exit)(status);
    __builtin_unreachable();
}

// ---- Threads ------------------------------------------------------------------------------------

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_create)(thread, attributes, body, argument);
    *thread =
        reinterpret_cast<pthread_t>(kernel->StartThread([body, argument] { body(argument); }));
    return 0;
}

int pthread_join(pthread_t thread, void** result) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_join)(thread, result);
    kernel->Join(reinterpret_cast<weft::sim::Thread*>(thread));
    return 0;
}

int pthread_detach(pthread_t thread) noexcept {
    return Inside() == nullptr ? REAL(pthread_detach)(thread) : 0;
}

pthread_t pthread_self() noexcept {
    Kernel* kernel = Kernel::Current();
    return kernel == nullptr ? REAL(pthread_self)()
                             : reinterpret_cast<pthread_t>(&kernel->thread());
}

int pthread_setname_np(pthread_t thread, const char* name) noexcept {
    return Inside() == nullptr ? REAL(pthread_setname_np)(thread, name) : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    Kernel* kernel = Kernel::Current();
    if (kernel == nullptr) return REAL(pthread_mutex_lock)(mutex);
    kernel->LockMutex(mutex);
    return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_cond_wait)(condition, mutex);
    kernel->WaitOn(condition, mutex, SimTask::kNever);
    return 0;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_cond_timedwait)(condition, mutex, until);
    return kernel->WaitOn(condition, mutex, ToNs(*until)) ? 0 : ETIMEDOUT;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
    return kernel->WaitOn(condition, mutex, ToNs(*until)) ? 0 : ETIMEDOUT;
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_cond_signal)(condition);
    kernel->Notify(condition, false);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
    Kernel* kernel = Inside();
    if (kernel == nullptr) return REAL(pthread_cond_broadcast)(condition);
    kernel->Notify(condition, true);
    return 0;
}

}  // extern "C"

// (The C++ library would read the processor's random numbers.)
std::random_device::result_type std::random_device::_M_getval() {
    result_type value = 0;
    ::getrandom(&value, sizeof value, 0);
    return value;
}

// A simulated kernel: hosts, processes, threads and TCP connections in virtual time, on one real
// thread. The code under test runs unchanged. libc.cc replaces the system calls that wait or
// communicate (poll, send, connect, pthread_cond_wait, ...); in a simulated thread they come here,
// elsewhere they are the real ones.
//
// All choices (delays, order of threads, short reads and writes) come from one seed, so a run can
// be repeated. A run happens in a forked process of its own (forked.h): a killed process's threads
// are abandoned at their current instruction, with everything that they hold.
//
// Files are real ones; those of the Disk may fail. Not simulated: signal handlers, names (addresses
// are numeric), IPv6, UDP.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/disk.h"
#include "sim/network.h"
#include "support/sim_time.h"

namespace weft::sim {

using test::SimRandom;
using test::SimTask;

inline constexpr int64_t kUs = 1'000;
inline constexpr int64_t kMs = 1'000'000;
inline constexpr uint64_t kDiskFreeBytes = uint64_t{100} << 30;
inline constexpr int kMostCables = 2;      // between two hosts
inline constexpr int kFirstFd = 1 << 20;   // smaller descriptors are real
inline constexpr int kFirstPid = 1 << 24;  // smaller ids are real

class Kernel;
struct Process;

// The object that a descriptor refers to.
struct File {
    virtual ~File() = default;
    // POLLIN, POLLOUT, POLLHUP, ... that are true now.
    virtual short Ready() const = 0;
    // The last descriptor was closed. abrupt: the process was killed.
    virtual void OnClosed(Kernel&) {}
    int descriptors = 0;
    std::vector<Process*> users{};
};

struct Address {
    uint32_t ip = 0;  // host order; 0: every address
    uint16_t port = 0;
    auto operator<=>(const Address&) const = default;
};

// One end of a TCP connection.
struct Stream final : File {
    short Ready() const override;
    void OnClosed(Kernel&) override;
    enum class State { kNew, kConnecting, kOpen, kFailed };
    State state = State::kNew;
    int host = 0;
    Address local, remote;
    std::weak_ptr<Stream> peer;
    std::string in;
    size_t in_begin = 0;        // bytes of `in` that were read
    size_t unread_by_peer = 0;  // sent bytes that the peer has not read
    int error = 0;              // SO_ERROR of a failed connection, or ECONNRESET
    bool end = false;           // the peer's FIN has arrived
    bool sent_end = false;
    bool resets = false;                     // SO_LINGER of 0
    bool keeps_alive = false;                // SO_KEEPALIVE
    std::shared_ptr<Flow> sent{}, coming{};  // packets to the peer, and from it; null: not yet
};

struct Listener final : File {
    short Ready() const override { return waiting.empty() ? 0 : POLLIN; }
    void OnClosed(Kernel&) override;
    int host = 0;
    Address local;
    std::deque<std::shared_ptr<Stream>> waiting;
};

struct Event final : File {  // eventfd(2)
    short Ready() const override { return static_cast<short>(POLLOUT | (count > 0 ? POLLIN : 0)); }
    uint64_t count = 0;
};

struct Signals final : File {  // signalfd(2)
    short Ready() const override { return pending.empty() ? 0 : POLLIN; }
    std::set<int> wanted;
    std::deque<int> pending;
};

struct Pipe final : File {  // the end for reading, filled once
    short Ready() const override { return POLLIN; }
    std::string bytes;
};

struct Thread {
    Process* process = nullptr;
    SimTask task;
    std::function<void()> body;
    bool done = false;
    bool in_poll = false;
    const void* waits_for = nullptr;  // a condition variable; null: none
    bool notified = false;
    long times_preempted = 0;
};

struct Process {
    int pid = 0, host = 0, parent = 0;
    std::string name;
    std::vector<std::unique_ptr<Thread>> threads;
    std::map<int, std::shared_ptr<File>> files;
    int next_fd = kFirstFd;
    bool ended = false, reaped = false, stopped = false, was_stopped = false;
    int status = 0;  // as of waitpid(2)
    int64_t began_ns = 0, ended_ns = 0;
    std::string err;              // what it wrote to standard error
    std::set<int> undelivered{};  // signals that arrived before a signalfd existed
    std::set<int> disk_fds{};     // real descriptors of files on the Disk
};

class Kernel {
  public:
    explicit Kernel(uint64_t seed);
    ~Kernel();
    static Kernel* Current();  // null: the caller is not a simulated thread

    // ---- The world, from outside of all threads ----
    // Hosts have the addresses 10.0.0.1, 10.0.0.2, ..., and 10.0.1.1, 10.0.1.2, ... on a second
    // cable.
    int AddHost();
    void SetCables(int cables) { cables_ = cables; }
    int cables() const { return cables_; }
    static uint32_t IpOf(int host, int cable = 0) {
        return 0x0a000001u + static_cast<uint32_t>(cable << 8 | host);
    }
    static std::string HostText(int host, int cable = 0);
    // Starts a process whose main thread runs `main`; its result is the exit status.
    Process& Start(int host, const std::string& name, std::function<int()> main);
    Process* Find(int pid) const;
    const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
    void Signal(Process& process, int signal);
    // The host and its processes end without a packet to any peer.
    void PowerOff(int host);
    void PowerOn(int host) { network_.PowerOn(host); }
    Network& network() { return network_; }
    // null: no disk. It must outlive the Kernel.
    void SetDisk(Disk* disk) { disk_ = disk; }
    void At(int64_t ns, std::function<void()> action);
    int64_t now() const { return timeline_.now(); }
    SimRandom& random() { return random_; }
    uint64_t steps() const { return timeline_.events(); }
    // Until `done` or the time; whether `done`.
    bool Run(const std::function<bool()>& done, int64_t until_ns);
    void Note(const std::string& text);  // into log(), with the time
    const std::string& log() const { return log_; }
    // A hash of when all events happened: equal in all runs of a seed.
    uint64_t trace() const { return trace_; }
    bool logs = false;
    std::string speed_file;  // a real file: Mbit/s of the second cable; "": unknown

    // ---- System calls of the running thread ----
    Process& process() const { return *running_->process; }
    Thread& thread() const { return *running_; }
    void Tick(int64_t ns = 200) {
        timeline_.Pass(ns);
        clock_reads_ = 0;
    }
    int64_t ReadClock();
    bool Owns(int fd) const { return fd >= kFirstFd; }
    std::shared_ptr<File> Get(int fd) const;
    template <typename T>
    std::shared_ptr<T> GetAs(int fd) const {
        return std::dynamic_pointer_cast<T>(Get(fd));
    }
    int Add(std::shared_ptr<File> file) { return AddTo(process(), std::move(file)); }
    int AddTo(Process& process, std::shared_ptr<File> file);
    int Close(int fd);
    int Poll(pollfd* fds, nfds_t count, int ms);
    int Bind(int fd, const sockaddr_in& address);
    int Listen(int fd);
    int Connect(int fd, const sockaddr_in& address);
    int Accept(int fd);
    ssize_t Send(int fd, const iovec* parts, size_t count);
    ssize_t Receive(int fd, const iovec* parts, size_t count, int flags);
    int Shutdown(int fd);
    void KeepAlive(const std::shared_ptr<Stream>& stream);
    void Sleep(int64_t ns);
    // False: the time has passed.
    bool WaitOn(const void* condition, pthread_mutex_t* mutex, int64_t until_ns);
    void Notify(const void* condition, bool all);
    void LockMutex(pthread_mutex_t* mutex);
    Thread* StartThread(std::function<void()> body);
    void Join(Thread* thread);
    [[noreturn]] void Exit(int status);
    int Kill(int pid, int signal);
    int WaitPid(int pid, int* status, int flags);
    // Starts a child of the running process that has some of its descriptors under new numbers.
    Process& StartChild(const std::string& name, std::function<int()> main);

    // ---- Files of the Disk ----
    bool OnDisk(const char* path) const { return disk_ != nullptr && disk_->Holds(path); }
    bool OnDisk(int fd) const { return process().disk_fds.contains(fd); }
    void NoteOpened(int fd) { process().disk_fds.insert(fd); }
    void NoteClosed(int fd) { process().disk_fds.erase(fd); }
    void NoteRenamed(const char* path) { disk_->renamed.emplace_back(path); }
    uint64_t DiskFreeBytes() { return disk_->full && random_.OneIn(2) ? 0 : kDiskFreeBytes; }
    // The errno (or 0) of a call that needs disk space, or that syncs unwritten data.
    int DiskFault(bool needs_room);
    // The number of bytes that a call writes, at most `size`; 0: it fails with errno.
    size_t DiskRoom(size_t size);

    void Changed(const File& file);
    // The FIN or RST of an end that is closed.
    void SendEnd(Stream& from);
    void SendReset(Stream& from);

  private:
    struct Action;
    void Call(const std::weak_ptr<Stream>& caller, int64_t pause_ns);
    void Called(const Route& route, const std::shared_ptr<Stream>& caller);
    void Answered(const std::weak_ptr<Stream>& caller, const std::weak_ptr<Stream>& server);
    void Finish(Process& process, int status, bool silent);
    void WakeSoon(Thread& thread);
    void Run(Thread& thread, std::function<void()> body);
    std::shared_ptr<Listener> ListenerAt(int host, const Address& address) const;
    bool IsOwn(uint32_t ip, int host) const;
    uint16_t FreePort();
    void Deliver(const std::shared_ptr<Stream>& from, std::string bytes);
    int HostOf(uint32_t ip, int from) const;
    void Reset(Stream& stream);  // a RST has arrived

    test::Timeline timeline_;
    SimRandom random_;
    std::vector<std::unique_ptr<Process>> processes_;
    std::vector<std::weak_ptr<Listener>> listeners_;
    Thread* running_ = nullptr;
    int hosts_ = 0;
    int clock_reads_ = 0;  // since the last other call
    int next_pid_ = kFirstPid;
    uint16_t next_port_ = 32768;
    int cables_ = 1;
    Network network_{*this};
    Disk* disk_ = nullptr;
    std::string log_;
    uint64_t trace_ = 0;
};

}  // namespace weft::sim

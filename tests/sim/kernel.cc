#include "sim/kernel.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/check.h"

namespace weft::sim {
namespace {

Kernel* g_kernel = nullptr;

constexpr size_t kSocketBytes = 128 << 10;  // sent and not yet read, per direction
constexpr int64_t kKeepAliveNs = 30'000 * kMs;
constexpr size_t kWholeBytes = 2048;
constexpr int64_t kWakeMostNs = 60 * kUs;  // until a woken thread runs
constexpr int64_t kClockNs = 30;           // to read a clock
// A thread that reads the clock again and again, and calls nothing else, computes between.
constexpr int kMostClockReads = 16;
constexpr int64_t kComputedNs = 2 * kMs;
constexpr int64_t kLockNapNs = 5 * kUs;
constexpr int64_t kFirstCallNs = 1'000 * kMs;  // until a connect packet is sent again

int Fails(int error) {
    errno = error;
    return -1;
}

}  // namespace

// An event of the timeline that calls a function once.
struct Kernel::Action final : test::SimTarget {
    explicit Action(std::function<void()> call) : todo(std::move(call)) {}
    void OnEvent(uint64_t) override {
        todo();
        delete this;
    }
    std::function<void()> todo;
};

Kernel::Kernel(uint64_t seed) : random_(seed) {
    WEFT_CHECK(g_kernel == nullptr);
    g_kernel = this;
    virtual_clock_ns = nullptr;  // clock_gettime in libc.cc tells the time, which passes
}

Kernel::~Kernel() {
    g_kernel = nullptr;
}

Kernel* Kernel::Current() {
    return g_kernel != nullptr && g_kernel->running_ != nullptr ? g_kernel : nullptr;
}

// ---- The world ----------------------------------------------------------------------------------

int Kernel::AddHost() {
    return hosts_++;
}

std::string Kernel::HostText(int host, int cable) {
    return fmt::format("10.0.{}.{}", cable, host + 1);
}

void Kernel::At(int64_t ns, std::function<void()> action) {
    timeline_.At(ns, *new Action(std::move(action)), 0);
}

void Kernel::Note(const std::string& text) {
    if (logs) log_ += fmt::format("{:12.3f} ms  {}\n", static_cast<double>(now()) / 1e6, text);
}

bool Kernel::Run(const std::function<bool()>& done, int64_t until_ns) {
    while (!done()) {
        if (now() > until_ns || !timeline_.Step()) return done();
        trace_ = (trace_ ^ static_cast<uint64_t>(now())) * 0x9e3779b97f4a7c15;
    }
    return true;
}

void Kernel::Run(Thread& thread, std::function<void()> body) {
    thread.body = std::move(body);
    thread.task.Start(timeline_, [this, &thread] {
        running_ = &thread;
        thread.body();
        thread.done = true;
        running_ = nullptr;
    });
}

Process& Kernel::Start(int host, const std::string& name, std::function<int()> main) {
    processes_.push_back(std::make_unique<Process>());
    Process& process = *processes_.back();
    process.pid = next_pid_++;
    process.host = host;
    process.name = name;
    process.began_ns = now();
    process.threads.push_back(std::make_unique<Thread>());
    Thread& thread = *process.threads.back();
    thread.process = &process;
    Note(fmt::format("{} starts on host {}", name, host));
    Run(thread, [this, &process, main = std::move(main)] {
        const int status = main();
        Finish(process, (status & 0xff) << 8, false);
    });
    return process;
}

Process& Kernel::StartChild(const std::string& name, std::function<int()> main) {
    const int parent = process().pid;
    Process& child = Start(process().host, name, std::move(main));
    child.parent = parent;
    return child;
}

Process* Kernel::Find(int pid) const {
    for (const auto& process : processes_) {
        if (process->pid == pid) return process.get();
    }
    return nullptr;
}

// status: as of waitpid(2). silent: its host ends, too, so no packet reports it.
void Kernel::Finish(Process& process, int status, bool silent) {
    if (process.ended) return;
    Note(fmt::format("{} ends with status {:#x}", process.name, status));
    process.ended = true;
    process.status = status;
    process.ended_ns = now();
    for (const auto& thread : process.threads) {
        if (thread.get() != running_) thread->task.Stop();
    }
    for (const int fd : std::exchange(process.disk_fds, {})) ::close(fd);
    auto files = std::move(process.files);
    process.files.clear();
    for (auto& [fd, file] : files) {
        std::erase(file->users, &process);
        if (--file->descriptors == 0 && !silent) file->OnClosed(*this);
    }
    if (Process* parent = Find(process.parent); parent != nullptr && !parent->ended) {
        Signal(*parent, SIGCHLD);
    }
}

void Kernel::Signal(Process& process, int signal) {
    if (process.ended) return;
    if (signal == SIGKILL) return Finish(process, SIGKILL, false);
    if (signal == SIGSTOP) {
        Note(fmt::format("{} stops", process.name));
        process.stopped = process.was_stopped = true;
        for (const auto& thread : process.threads) thread->task.Stop();
        return;
    }
    if (signal == SIGCONT) {
        Note(fmt::format("{} continues", process.name));
        process.stopped = false;
        for (const auto& thread : process.threads) thread->task.Continue();
        return;
    }
    bool taken = false;
    for (const auto& [fd, file] : process.files) {
        auto* signals = dynamic_cast<Signals*>(file.get());
        if (signals == nullptr || !signals->wanted.contains(signal)) continue;
        if (std::ranges::count(signals->pending, signal) == 0) signals->pending.push_back(signal);
        Changed(*signals);
        taken = true;
        break;
    }
    if (!taken) process.undelivered.insert(signal);
}

void Kernel::PowerOff(int host) {
    Note(fmt::format("host {} is switched off", host));
    network_.PowerOff(host);
    for (size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i]->host == host) Finish(*processes_[i], SIGKILL, true);
    }
}

// ---- Threads ------------------------------------------------------------------------------------

void Kernel::WakeSoon(Thread& thread) {
    At(now() + random_.Between(1 * kUs, kWakeMostNs), [&thread] { thread.task.Wake(); });
}

int64_t Kernel::ReadClock() {
    timeline_.Pass(++clock_reads_ > kMostClockReads ? kComputedNs : kClockNs);
    return now();
}

void Kernel::Sleep(int64_t ns) {
    Thread& self = *running_;
    const int64_t until = now() + ns;
    while (now() < until) {
        running_ = nullptr;
        self.task.SleepUntil(until);
        running_ = &self;
    }
}

Thread* Kernel::StartThread(std::function<void()> body) {
    process().threads.push_back(std::make_unique<Thread>());
    Thread& thread = *process().threads.back();
    thread.process = &process();
    Run(thread, std::move(body));
    return &thread;
}

void Kernel::Join(Thread* thread) {
    for (int64_t nap_ns = 10 * kUs; !thread->done; nap_ns = std::min(2 * nap_ns, 5 * kMs)) {
        Sleep(nap_ns);
    }
}

void Kernel::Exit(int status) {
    Thread& self = *running_;
    Finish(process(), (status & 0xff) << 8, false);
    running_ = nullptr;
    self.task.Stop();
    for (;;) self.task.SleepUntil(SimTask::kNever);
}

void Kernel::LockMutex(pthread_mutex_t* mutex) {
    // Other threads may run first.
    if (random_.OneIn(64)) Sleep(random_.Between(1 * kUs, 200 * kUs));
    while (::pthread_mutex_trylock(mutex) != 0) Sleep(kLockNapNs);
}

bool Kernel::WaitOn(const void* condition, pthread_mutex_t* mutex, int64_t until_ns) {
    Thread& self = *running_;
    self.waits_for = condition;
    self.notified = false;
    ::pthread_mutex_unlock(mutex);
    while (!self.notified && now() < until_ns) {
        running_ = nullptr;
        self.task.SleepUntil(until_ns);
        running_ = &self;
    }
    self.waits_for = nullptr;
    const bool notified = self.notified;
    while (::pthread_mutex_trylock(mutex) != 0) Sleep(kLockNapNs);
    return notified;
}

void Kernel::Notify(const void* condition, bool all) {
    for (const auto& thread : process().threads) {
        if (thread->waits_for != condition || thread->notified) continue;
        thread->notified = true;
        WakeSoon(*thread);
        if (!all) return;
    }
}

int Kernel::Kill(int pid, int signal) {
    Process* found = Find(pid);
    if (found == nullptr || found->reaped) return Fails(ESRCH);
    if (signal != 0) Signal(*found, signal);
    return 0;
}

int Kernel::WaitPid(int pid, int* status, int flags) {
    for (;;) {
        Process* child = Find(pid);
        if (child == nullptr || child->reaped || child->parent != process().pid) {
            return Fails(ECHILD);
        }
        if (child->ended) {
            child->reaped = true;
            if (status != nullptr) *status = child->status;
            return pid;
        }
        if ((flags & WNOHANG) != 0) return 0;
        Sleep(1 * kMs);
    }
}

// ---- Descriptors --------------------------------------------------------------------------------

std::shared_ptr<File> Kernel::Get(int fd) const {
    const auto found = process().files.find(fd);
    return found == process().files.end() ? nullptr : found->second;
}

int Kernel::AddTo(Process& process, std::shared_ptr<File> file) {
    file->descriptors++;
    file->users.push_back(&process);
    process.files[process.next_fd] = std::move(file);
    return process.next_fd++;
}

int Kernel::Close(int fd) {
    const auto found = process().files.find(fd);
    if (found == process().files.end()) return Fails(EBADF);
    const std::shared_ptr<File> file = found->second;
    process().files.erase(found);
    std::erase(file->users, &process());
    if (--file->descriptors == 0) file->OnClosed(*this);
    return 0;
}

void Kernel::Changed(const File& file) {
    for (const Process* user : file.users) {
        for (const auto& thread : user->threads) {
            if (thread->in_poll) WakeSoon(*thread);
        }
    }
}

int Kernel::Poll(pollfd* fds, nfds_t count, int ms) {
    const int64_t until = ms < 0 ? SimTask::kNever : now() + ms * kMs;
    Thread& self = *running_;
    for (;;) {
        int ready = 0;
        for (nfds_t i = 0; i < count; ++i) {
            fds[i].revents = 0;
            if (fds[i].fd < 0) continue;
            const std::shared_ptr<File> file = Get(fds[i].fd);
            const short always = POLLHUP | POLLERR;
            fds[i].revents = file == nullptr
                                 ? static_cast<short>(POLLNVAL)
                                 : static_cast<short>(file->Ready() & (fds[i].events | always));
            ready += fds[i].revents != 0 ? 1 : 0;
        }
        if (ready > 0 || now() >= until) return ready;
        self.in_poll = true;
        running_ = nullptr;
        self.task.SleepUntil(until);
        running_ = &self;
        self.in_poll = false;
    }
}

// ---- The disk -----------------------------------------------------------------------------------

int Kernel::DiskFault(bool needs_room) {
    if (disk_->slow_ns > 0) Sleep(random_.Between(0, disk_->slow_ns));
    if (random_.Below(100) < static_cast<uint64_t>(disk_->broken_percent)) return EIO;
    return needs_room && disk_->full ? ENOSPC : 0;
}

size_t Kernel::DiskRoom(size_t size) {
    // (A part may still fit. Linux may also interrupt a long write.)
    const bool is_short =
        disk_->full ? size > 1 && random_.OneIn(2) : size > kWholeBytes && random_.OneIn(16);
    errno = DiskFault(!is_short);
    if (errno != 0) return 0;
    return is_short ? 1 + random_.Below(size - 1) : size;
}

// ---- TCP ----------------------------------------------------------------------------------------

short Stream::Ready() const {
    switch (state) {
        case State::kNew: return POLLHUP | POLLOUT;
        case State::kConnecting: return 0;
        case State::kFailed: return POLLIN | POLLOUT | POLLERR | POLLHUP;
        case State::kOpen: break;
    }
    short ready = 0;
    if (in_begin < in.size() || end) ready |= POLLIN;
    if (end) ready |= POLLRDHUP;
    if (end && sent_end) ready |= POLLHUP;
    if (unread_by_peer < kSocketBytes) ready |= POLLOUT;
    return ready;
}

void Stream::OnClosed(Kernel& kernel) {
    if (state != State::kOpen) return;
    if (resets || in_begin < in.size()) {
        kernel.SendReset(*this);
    } else if (!sent_end) {
        kernel.SendEnd(*this);
    }
}

void Listener::OnClosed(Kernel& kernel) {
    for (const auto& stream : waiting) kernel.SendReset(*stream);
    waiting.clear();
}

void Kernel::SendEnd(Stream& from) {
    Note(fmt::format("FIN from {}:{} to {}:{}", from.host, from.local.port, from.sent->route.to,
                     from.remote.port));
    from.sent_end = true;
    network_.Send(from.sent, 0, [this, to = from.peer] {
        const std::shared_ptr<Stream> stream = to.lock();
        if (stream == nullptr) return;
        stream->end = true;
        Changed(*stream);
    });
}

void Kernel::SendReset(Stream& from) {
    Note(fmt::format("RST from {}:{} to {}:{}", from.host, from.local.port, from.sent->route.to,
                     from.remote.port));
    from.sent_end = true;
    network_.Send(from.sent, 0, [this, to = from.peer] {
        if (const std::shared_ptr<Stream> stream = to.lock(); stream != nullptr) Reset(*stream);
    });
}

void Kernel::Reset(Stream& stream) {
    Note(fmt::format("reset arrives at {}:{} from port {}", stream.host, stream.local.port,
                     stream.remote.port));
    stream.error = stream.state == Stream::State::kConnecting ? ECONNREFUSED : ECONNRESET;
    stream.state = Stream::State::kFailed;  // (data received before can still be read)
    Changed(stream);
}

std::shared_ptr<Listener> Kernel::ListenerAt(int host, const Address& address) const {
    for (const auto& each : listeners_) {
        const std::shared_ptr<Listener> listener = each.lock();
        if (listener == nullptr || listener->descriptors == 0 || listener->host != host) continue;
        const Address& local = listener->local;
        const bool hears = local.ip == 0 || address.ip == 0 || local.ip == address.ip;
        if (hears && local.port == address.port) return listener;
    }
    return nullptr;
}

bool Kernel::IsOwn(uint32_t ip, int host) const {
    return ip >> 24 == 127 || HostOf(ip, -1) == host;
}

uint16_t Kernel::FreePort() {
    return next_port_++;
}

// The address of a new socket; Listen makes a listener of it.
int Kernel::Bind(int fd, const sockaddr_in& address) {
    const auto stream = GetAs<Stream>(fd);
    if (stream == nullptr) return Fails(EBADF);
    const uint16_t port = ntohs(address.sin_port);
    const int host = process().host;
    const uint32_t ip = ntohl(address.sin_addr.s_addr);
    if (port != 0 && ListenerAt(host, {ip, port}) != nullptr) return Fails(EADDRINUSE);
    if (ip != 0 && !IsOwn(ip, host)) return Fails(EADDRNOTAVAIL);
    stream->local = {ip, port != 0 ? port : FreePort()};
    return 0;
}

int Kernel::Listen(int fd) {
    const auto stream = GetAs<Stream>(fd);
    if (stream == nullptr) return Fails(EBADF);
    const auto listener = std::make_shared<Listener>();
    listener->host = process().host;
    listener->local = stream->local;
    listener->descriptors = 1;
    listener->users.push_back(&process());
    listeners_.push_back(listener);
    process().files[fd] = listener;
    return 0;
}

// Host of an address as seen from a host; -1: none.
int Kernel::HostOf(uint32_t ip, int from) const {
    if (ip >> 24 == 127) return from;
    const uint32_t place = ip - IpOf(0);
    const int host = static_cast<int>(place & 0xff), cable = static_cast<int>(place >> 8);
    return cable < cables_ && host < hosts_ ? host : -1;
}

int Kernel::Connect(int fd, const sockaddr_in& address) {
    const auto client = GetAs<Stream>(fd);
    if (client == nullptr) return Fails(EBADF);
    const int from = process().host;
    const uint32_t ip = ntohl(address.sin_addr.s_addr);
    const int to = HostOf(ip, from);
    const int cable = to == from ? 0 : static_cast<int>(ip >> 8 & 0xff);
    client->host = from;
    client->remote = {ip, ntohs(address.sin_port)};
    client->local = {to == from ? ip : IpOf(from, cable), FreePort()};
    client->state = Stream::State::kConnecting;
    if (to < 0) return Fails(EINPROGRESS);  // nobody answers
    client->sent = network_.MakeFlow({from, to, cable});
    Call(client, kFirstCallNs);
    return Fails(EINPROGRESS);
}

// Sends the first packet of a connection, and again until there is an answer.
void Kernel::Call(const std::weak_ptr<Stream>& caller, int64_t pause_ns) {
    const std::shared_ptr<Stream> stream = caller.lock();
    if (stream == nullptr || stream->descriptors == 0) return;
    if (stream->state != Stream::State::kConnecting) return;
    At(now() + pause_ns, [this, caller, pause_ns] { Call(caller, 2 * pause_ns); });
    const Route route = stream->sent->route;
    network_.SendOnce(route, [this, route, caller] {
        const std::shared_ptr<Stream> found = caller.lock();
        if (found != nullptr && found->coming == nullptr) Called(route, found);
    });
}

void Kernel::Called(const Route& route, const std::shared_ptr<Stream>& caller) {
    const std::shared_ptr<Listener> listener = ListenerAt(route.to, caller->remote);
    const std::weak_ptr<Stream> weak = caller;
    if (listener == nullptr) {
        network_.SendOnce(route.Back(), [this, weak] {
            const std::shared_ptr<Stream> refused = weak.lock();
            // (An answer to a later call may have come before.)
            const bool waits = refused != nullptr && refused->state == Stream::State::kConnecting;
            if (waits) Reset(*refused);
        });
        return;
    }
    const auto server = std::make_shared<Stream>();
    server->state = Stream::State::kOpen;
    server->host = route.to;
    server->local = caller->remote;
    server->remote = caller->local;
    server->peer = caller;
    server->coming = caller->sent;
    server->sent = caller->coming = network_.MakeFlow(route.Back());
    listener->waiting.push_back(server);
    Changed(*listener);
    // (Data that the server sends arrives after its answer.)
    network_.Send(server->sent, 0,
                  [this, weak, answered = std::weak_ptr(server)] { Answered(weak, answered); });
}

void Kernel::Answered(const std::weak_ptr<Stream>& caller, const std::weak_ptr<Stream>& server) {
    const std::shared_ptr<Stream> opened = caller.lock();
    const std::shared_ptr<Stream> other = server.lock();
    if (opened == nullptr || opened->descriptors == 0) {  // it has given up
        if (other != nullptr) Reset(*other);
        return;
    }
    if (opened->state != Stream::State::kConnecting) return;
    opened->state = Stream::State::kOpen;
    opened->peer = server;
    Changed(*opened);
    if (other == nullptr) Reset(*opened);
}

int Kernel::Accept(int fd) {
    const auto listener = GetAs<Listener>(fd);
    if (listener == nullptr) return Fails(EBADF);
    if (listener->waiting.empty()) return Fails(EAGAIN);
    const std::shared_ptr<Stream> stream = listener->waiting.front();
    listener->waiting.pop_front();
    return Add(stream);
}

ssize_t Kernel::Send(int fd, const iovec* parts, size_t count) {
    const auto stream = GetAs<Stream>(fd);
    if (stream == nullptr) return Fails(EBADF);
    if (stream->state == Stream::State::kConnecting) return Fails(EAGAIN);
    if (stream->state != Stream::State::kOpen || stream->sent_end) {
        return Fails(stream->error != 0 ? std::exchange(stream->error, 0) : EPIPE);
    }
    std::string bytes;
    for (size_t i = 0; i < count; ++i) {
        bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    const size_t room = kSocketBytes - std::min(kSocketBytes, stream->unread_by_peer);
    if (room == 0 || (bytes.size() <= kWholeBytes && room < bytes.size())) return Fails(EAGAIN);
    if (bytes.size() > room) bytes.resize(room);
    // (Linux accepts a short message completely, or not at all.)
    if (bytes.size() > kWholeBytes && random_.OneIn(16)) {
        bytes.resize(1 + random_.Below(bytes.size()));
    }
    const size_t sent = bytes.size();
    stream->unread_by_peer += sent;
    if (sent > 1 && random_.OneIn(8)) {  // in two packets
        const size_t cut = 1 + random_.Below(sent - 1);
        Deliver(stream, bytes.substr(0, cut));
        bytes.erase(0, cut);
    }
    Deliver(stream, std::move(bytes));
    return static_cast<ssize_t>(sent);
}

void Kernel::Deliver(const std::shared_ptr<Stream>& from, std::string bytes) {
    const size_t size = bytes.size();
    network_.Send(from->sent, size, [this, weak = std::weak_ptr(from), to = from->peer, bytes] {
        const std::shared_ptr<Stream> target = to.lock();
        if (target != nullptr && (target->descriptors > 0 || !target->sent_end)) {
            // (It may still wait to be accepted.)
            if (target->state == Stream::State::kFailed) return;
            target->in += bytes;
            return Changed(*target);
        }
        // That end of the connection no longer exists.
        const std::shared_ptr<Stream> sender = weak.lock();
        if (sender == nullptr) return;
        network_.SendReset(sender->coming, [this, weak] {
            if (const auto end = weak.lock(); end != nullptr) Reset(*end);
        });
    });
}

ssize_t Kernel::Receive(int fd, const iovec* parts, size_t count, int flags) {
    const auto stream = GetAs<Stream>(fd);
    if (stream == nullptr) return Fails(EBADF);
    const size_t left = stream->in.size() - stream->in_begin;
    if (left == 0) {
        if (stream->error != 0) return Fails(std::exchange(stream->error, 0));
        return stream->end || stream->state == Stream::State::kFailed ? 0 : Fails(EAGAIN);
    }
    size_t got = 0;
    for (size_t i = 0; i < count && got < left; ++i) {
        const size_t take = std::min(parts[i].iov_len, left - got);
        std::memcpy(parts[i].iov_base, stream->in.data() + stream->in_begin + got, take);
        got += take;
    }
    if ((flags & MSG_PEEK) != 0) return static_cast<ssize_t>(got);
    stream->in_begin += got;
    if (stream->in_begin == stream->in.size()) {
        stream->in.clear();
        stream->in_begin = 0;
    }
    if (const std::shared_ptr<Stream> sender = stream->peer.lock(); sender != nullptr) {
        sender->unread_by_peer -= std::min(sender->unread_by_peer, got);
        Changed(*sender);
    }
    return static_cast<ssize_t>(got);
}

// A periodic probe detects a peer that has ended.
void Kernel::KeepAlive(const std::shared_ptr<Stream>& stream) {
    At(now() + kKeepAliveNs, [this, weak = std::weak_ptr(stream)] {
        const std::shared_ptr<Stream> found = weak.lock();
        if (found == nullptr || found->state == Stream::State::kFailed) return;
        const bool silent = found->sent == nullptr || found->peer.expired() ||
                            !network_.Carries(found->sent->route) ||
                            !network_.Carries(found->sent->route.Back());
        if (silent && found->state == Stream::State::kOpen && !found->end) return Reset(*found);
        KeepAlive(found);
    });
}

int Kernel::Shutdown(int fd) {
    const auto stream = GetAs<Stream>(fd);
    if (stream == nullptr) return Fails(EBADF);
    if (stream->state == Stream::State::kOpen && !stream->sent_end) SendEnd(*stream);
    return 0;
}

}  // namespace weft::sim

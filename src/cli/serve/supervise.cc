#include "cli/serve/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/terminal/output.h"
#include "serve/waiting.h"

// Linux 5.9, in glibc 2.34's unistd.h; the flag is in a kernel header that clashes with others.
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

namespace weft::cli {
namespace {

constexpr std::string_view kVariable = "WEFT_SUPERVISOR=";  // "DESCRIPTOR PORT HOST,HOST"
constexpr size_t kMostMessage = 16384;
constexpr size_t kMostWhy = 4000;
constexpr int64_t kFirstPauseMs = 1000, kLongestPauseMs = 15'000;
constexpr int64_t kLongestAnswerMs = 30'000;  // of the supervisor
constexpr int64_t kSayAgainMs = 600'000;      // interval for logging an unchanged reason again

std::optional<std::string> Receive(int socket) {
    std::string text(kMostMessage, 0);
    ssize_t got = -1;
    while ((got = ::recv(socket, text.data(), text.size(), 0)) < 0 && errno == EINTR) {
    }
    if (got <= 0) return std::nullopt;
    text.resize(static_cast<size_t>(got));
    return text;
}

bool Send(int socket, const std::string& text) {
    return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
}

std::string JoinedHosts(const std::vector<std::string>& hosts) {
    return fmt::format("host{} {}", hosts.size() == 1 ? "" : "s", fmt::join(hosts, ", "));
}

// The end of a child, and its last messages.
struct Ended {
    int status = 0;       // as in waitpid
    bool served = false;  // the child had begun to serve
    bool again = false;   // the child has received that it will be restarted
    std::string why;      // for the log
    std::string waits;    // for clients
    int exit_status() const {
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
};

class Runner {
  public:
    Runner(std::vector<std::string> words, const serve::HttpOptions& http,
           const HangupRule& hangups)
        : http_(http), hangups_(hangups), words_(std::move(words)) {}
    Result<int> Run();

  private:
    Status Open();
    Result<Ended> Watch(pid_t pid, Fd socket);
    void Hear(const std::string& text, const Fd& socket, Ended& ended);
    // Receives pending signals and forwards them to the child (0: no child).
    void PassSignals(pid_t pid);
    bool StartsAgain(const Ended& ended);
    void Pause(const Ended& ended);
    void Answer(const std::string& why);

    serve::HttpOptions http_;
    const HangupRule hangups_;
    const std::vector<std::string> words_;  // the child's command line
    sigset_t before_{};
    Fd signals_;
    std::unique_ptr<serve::WaitingServer> waiting_;
    std::vector<std::string> hosts_;
    bool served_ = false;   // a child has served
    bool listens_ = false;  // the child listens, or is about to
    bool stopping_ = false;
    int64_t pause_ms_ = kFirstPauseMs;
    std::string said_;
    Deadline say_again_ = Deadline::In(0);
};

Status Runner::Open() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, number);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    signals_ = Fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!signals_.valid()) return MakeError(ErrorCode::kIo, "signalfd: {}", std::strerror(errno));
    // Opening the port now reports a port in use at once.
    WEFT_ASSIGN(waiting_, serve::WaitingServer::Start(http_, "the server is starting"));
    http_.port = waiting_->port();
    return {};
}

void Runner::PassSignals(pid_t pid) {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
        int number = static_cast<int>(info.ssi_signo);
        if (number == SIGCHLD) continue;
        if (number == SIGHUP) {
            // A closing terminal may send several SIGHUPs, and a second SIGTERM makes the child cut
            // answers.
            if (stopping_) continue;
            if (hangups_.Stops()) {
                number = SIGTERM;
            } else if (!listens_) {
                continue;  // the child does not catch reloads yet, and will read its files anyway
            }
        }
        stopping_ = stopping_ || number != SIGHUP;
        if (pid <= 0) continue;
        ::kill(pid, number);
        if (number != SIGHUP) ::kill(pid, SIGCONT);  // a stopped process handles no signal
    }
}

void Runner::Hear(const std::string& text, const Fd& socket, Ended& ended) {
    const Json said = OrderedJsonOrDiscarded(text);
    const std::string state = said.is_object() ? said.value("state", "") : "";
    if (state == "listens") {
        waiting_.reset();
        listens_ = true;
    }
    if (state == "serves") {
        served_ = ended.served = true;
        pause_ms_ = kFirstPauseMs;
        said_.clear();
        hosts_ = said.value("hosts", hosts_);
        return;
    }
    if (state == "failed") {
        const auto code = static_cast<ErrorCode>(said.value("code", 0));
        const std::vector<std::string> missing = said.value("missing", std::vector<std::string>());
        ended.why = said.value("why", "");
        ended.waits = missing.empty() ? "" : "waiting for " + JoinedHosts(missing);
        ended.again = !stopping_ && MayPass(code, served_);
    }
    Send(socket.get(), ended.again ? "again" : "ok");
}

Result<Ended> Runner::Watch(pid_t pid, Fd socket) {
    Ended ended;
    while (true) {
        std::array<pollfd, 2> fds = {pollfd{signals_.get(), POLLIN, 0},
                                     pollfd{socket.get(), POLLIN, 0}};
        ::poll(fds.data(), fds.size(), -1);  // (the end of a child is a signal)
        PassSignals(pid);
        if (fds[1].revents != 0) {
            const auto text = Receive(socket.get());
            if (text.has_value()) {
                Hear(*text, socket, ended);
                continue;
            }
            socket = Fd();  // poll skips it
        }
        const pid_t got = ::waitpid(pid, &ended.status, WNOHANG);
        if (got == pid) return ended;
        if (got < 0 && errno != EINTR) {
            return MakeError(ErrorCode::kIo, "waitpid: {}", std::strerror(errno));
        }
    }
}

bool Runner::StartsAgain(const Ended& ended) {
    if (stopping_) return false;
    if (ended.again) return true;
    // Restarts after a crash or a kill for lack of memory, unless the child never served: then the
    // fault would repeat.
    return WIFSIGNALED(ended.status) && served_;
}

void Runner::Answer(const std::string& why) {
    waiting_.reset();
    auto opened = serve::WaitingServer::Start(http_, why);
    if (opened.ok()) {
        waiting_ = *std::move(opened);
    } else {
        Log(LogLevel::kWarning, "cannot tell clients why they wait: {}", opened.error().message);
    }
}

void Runner::Pause(const Ended& ended) {
    const std::string why =
        WIFSIGNALED(ended.status)
            ? fmt::format("the server was killed by signal {} ({})", WTERMSIG(ended.status),
                          ::strsignal(WTERMSIG(ended.status)))
            : ended.why;
    const std::string waits = ended.waits.empty() ? "restarting the server" : ended.waits;
    if (why != said_ || say_again_.expired()) {
        Log(LogLevel::kWarning, "{}, at least every {} s: {}", waits, kLongestPauseMs / 1000, why);
        said_ = why;
        say_again_ = Deadline::In(kSayAgainMs);
    }
    Answer(waits);
    const Deadline deadline = Deadline::In(pause_ms_);
    pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
    while (!deadline.expired() && !stopping_) {
        pollfd fd{signals_.get(), POLLIN, 0};
        ::poll(&fd, 1, static_cast<int>(deadline.left_ms()));
        PassSignals(0);
    }
}

Result<int> Runner::Run() {
    WEFT_TRY(Open());
    for (bool first = true;; first = false) {
        auto process = StartServer(words_, http_.port, hosts_, {}, &before_, SIGTERM);
        if (!process.ok()) {
            if (first) return process.error();
            Ended failed;
            failed.why = process.error().message;  // the system lacks memory or processes
            Pause(failed);
            if (stopping_) return 0;
            continue;
        }
        listens_ = false;
        WEFT_ASSIGN(const Ended ended, Watch(process->pid, std::move(process->socket)));
        if (!StartsAgain(ended)) {
            // A child that a signal ended before it could catch signals also stopped as requested.
            const int status = ended.exit_status();
            const bool by_signal = status == 128 + SIGINT || status == 128 + SIGTERM;
            return stopping_ && by_signal ? 0 : status;
        }
        Pause(ended);
        if (stopping_) return 0;
    }
}

}  // namespace

namespace {

// Gives SIGINT, SIGTERM and SIGHUP their default action, as exec does.
void DropHandlers() {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction action {};
        ::sigaction(number, nullptr, &action);
        if (action.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
    }
}

}  // namespace

Result<ServerProcess> StartServer(std::vector<std::string> words, int port,
                                  const std::vector<std::string>& hosts,
                                  std::vector<std::string> variables, const sigset_t* signals,
                                  int orphan_signal, int inherits) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return MakeError(ErrorCode::kIo, "socketpair: {}", std::strerror(errno));
    }
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    variables.push_back(
        fmt::format("{}{} {} {}", kVariable, theirs.get(), port, fmt::join(hosts, ",")));
    std::vector<char*> argv, environment;
    for (std::string& word : words) argv.push_back(word.data());
    for (char** each = environ; *each != nullptr; ++each) environment.push_back(*each);
    for (std::string& variable : variables) environment.push_back(variable.data());
    argv.push_back(nullptr);
    environment.push_back(nullptr);
    const pid_t parent = ::getpid();
    // Until exec, the child has this process's handlers, which would swallow a signal for the
    // child.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t pid = ::fork();
    if (pid != 0) ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (pid == 0) {  // only async-signal-safe calls, since the process has threads
        DropHandlers();
        ::prctl(PR_SET_PDEATHSIG, orphan_signal);
        if (::getppid() != parent) ::_exit(1);
        ::setpgid(0, 0);  // Ctrl-C reaches the child only through this process
        ::sigprocmask(SIG_SETMASK, signals != nullptr ? signals : &before, nullptr);
        // (This alone closes the port of this process on exec.)
        ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
        ::fcntl(theirs.get(), F_SETFD, 0);
        if (inherits >= 0) ::fcntl(inherits, F_SETFD, 0);
        ::execve("/proc/self/exe", argv.data(), environment.data());
        ::_exit(127);
    }
    if (pid > 0) return ServerProcess{pid, std::move(ours)};
    return MakeError(ErrorCode::kIo, "cannot start the server: fork: {}", std::strerror(errno));
}

Supervisor Supervisor::Take() {
    Supervisor supervisor;
    const std::string name(kVariable.substr(0, kVariable.size() - 1));
    const char* text = std::getenv(name.c_str());
    if (text == nullptr) return supervisor;
    const std::string_view all = text;
    const size_t first = std::min(all.find(' '), all.size());
    const size_t second = std::min(all.find(' ', first + 1), all.size());
    int fd = -1;
    std::from_chars(all.data(), all.data() + first, fd);
    const char* port = all.data() + std::min(first + 1, all.size());
    std::from_chars(port, all.data() + second, supervisor.port_);
    for (std::string_view rest = all.substr(std::min(second + 1, all.size())); !rest.empty();) {
        const std::string_view host = rest.substr(0, rest.find(','));
        supervisor.hosts_.emplace_back(host);
        rest.remove_prefix(std::min(host.size() + 1, rest.size()));
    }
    ::unsetenv(name.c_str());
    int type = 0;
    socklen_t size = sizeof type;
    const bool good = fd > STDERR_FILENO &&
                      ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                      type == SOCK_SEQPACKET;
    if (!good) return {};
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    const timeval longest{kLongestAnswerMs / 1000, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    supervisor.socket_ = Fd(fd);
    return supervisor;
}

// Returns the answer; empty if the supervisor has ended. A signal then ends this process.
std::string Supervisor::Ask(const std::string& text) const {
    if (!Send(socket_.get(), text)) return "";
    return Receive(socket_.get()).value_or("");
}

void Supervisor::PromptForPort() const {
    if (present()) Ask(Json{{"state", "listens"}}.dump());
}

void Supervisor::LogServing(int port, const std::vector<std::string>& hosts) const {
    if (!present()) return;
    Send(socket_.get(), Json{{"state", "serves"}, {"port", port}, {"hosts", hosts}}.dump());
}

bool Supervisor::ReportFailure(const Error& error, const std::vector<std::string>& missing) const {
    if (!present()) return false;
    const Json failed{{"state", "failed"},
                      {"code", static_cast<int>(error.code)},
                      {"why", error.message.substr(0, kMostWhy)},
                      {"missing", missing}};
    return Ask(failed.dump(-1, ' ', false, Json::error_handler_t::replace)) == "again";
}

Result<int> Supervise(std::vector<std::string> words, const serve::HttpOptions& http,
                      const HangupRule& hangups) {
    return Runner(std::move(words), http, hangups).Run();
}

Result<std::vector<std::string>> OwnCommandLine() {
    WEFT_ASSIGN(const std::string line, ReadTextStream("/proc/self/cmdline", 1 << 21));
    std::vector<std::string> words;
    for (size_t at = 0; at < line.size(); at = line.find('\0', at) + 1) {
        words.emplace_back(line.c_str() + at);
    }
    if (!words.empty()) return words;
    return MakeError(ErrorCode::kIo, "/proc/self/cmdline is empty. Is /proc mounted?");
}

bool MayPass(ErrorCode code, bool served) {
    switch (code) {
        case ErrorCode::kUsage:
        case ErrorCode::kCancelled: return false;
        case ErrorCode::kIo:
        case ErrorCode::kTimeout:
        case ErrorCode::kPeerLost: return true;
        case ErrorCode::kNotFound:
        case ErrorCode::kCorrupt:
        case ErrorCode::kUnsupported:
        case ErrorCode::kOutOfMemory:
        case ErrorCode::kDenied: return served;
    }
    return false;
}

}  // namespace weft::cli

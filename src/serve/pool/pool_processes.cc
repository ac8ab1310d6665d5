// The processes of loaded models: start, messages, end.
#include "serve/pool/pool_impl.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "serve/api/status.h"
#include "serve/pool/forward.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;

constexpr size_t kMostMessage = 16384;
constexpr int64_t kUnloadMs = 10'000;  // then a process that should end is killed
constexpr int64_t kProbeMs = 1000;     // between two probes of a process
constexpr auto kEndTurn = std::chrono::milliseconds(2);

std::string EndText(int status) {
    if (WIFSIGNALED(status)) {
        return fmt::format("killed by signal {} ({})", WTERMSIG(status),
                           ::strsignal(WTERMSIG(status)));
    }
    return fmt::format("exit status {}", WEXITSTATUS(status));
}

// The error that clients get if a load fails.
ApiError LoadError(const std::string& name, const Error& error) {
    const bool may_pass = error.code == ErrorCode::kPeerLost || error.code == ErrorCode::kTimeout ||
                          error.code == ErrorCode::kOutOfMemory;
    return {may_pass ? 503 : 500,
            fmt::format("The model '{}' could not be loaded: {}", name, error.message), "",
            "model_load_failed"};
}

}  // namespace

void PoolServer::Impl::Load(size_t model) {
    const int64_t now_ms = NowMs();
    ++counts_[model].loads;
    counts_[model].killed_why.clear();
    auto started = options_.start(model);
    if (!started.ok()) return LoadFailed(model, started.error());
    processes_[model] = {
        .pid = started->pid, .began_ms = now_ms, .kill_ms = now_ms + options_.load_ms};
    asio::co_spawn(context_, Watch(model, std::move(started->socket)), Rethrow);
}

void PoolServer::Impl::Unload(size_t model) {
    ::kill(processes_[model].pid, SIGTERM);
    processes_[model].kill_ms = NowMs() + kUnloadMs;
}

void PoolServer::Impl::KillLate(int64_t now_ms) {
    for (size_t i = 0; i < processes_.size(); ++i) {
        Process& process = processes_[i];
        if (process.pid < 0 || now_ms < process.kill_ms) continue;
        if (schedule_.state(i) == State::kLoading && !ends_) {
            process.error =
                Error{ErrorCode::kTimeout,
                      fmt::format("no answer within {} ms (--load-timeout-ms)", options_.load_ms)};
        }
        ::kill(process.pid, SIGKILL);
        process.kill_ms = INT64_MAX;
    }
}

bool PoolServer::Impl::IsLoaded(size_t model, pid_t pid) const {
    return schedule_.state(model) == State::kLoaded && processes_[model].pid == pid;
}

// Reads the process's messages until its end.
asio::awaitable<void> PoolServer::Impl::Watch(size_t model, Fd socket) {
    asio::posix::stream_descriptor descriptor(context_, socket.get());
    std::string text(kMostMessage, '\0');
    while (true) {
        boost::system::error_code failure;
        co_await descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                       asio::redirect_error(asio::use_awaitable, failure));
        const ssize_t got = ::recv(socket.get(), text.data(), text.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) break;
        OnChildMessage(model, text.substr(0, static_cast<size_t>(got)), socket.get());
    }
    descriptor.release();
    socket.Reset();
    // The socket closes when the process ends. A process that closed it and still runs is killed.
    Process& process = processes_[model];
    process.kill_ms = std::min(process.kill_ms, NowMs() + kUnloadMs);
    asio::steady_timer timer(context_);
    int status = 0;
    while (::waitpid(process.pid, &status, WNOHANG) == 0) {
        timer.expires_after(kEndTurn);
        co_await timer.async_wait(asio::use_awaitable);
    }
    Ended(model, status);
}

// Kills the process if it answers no probe for about silence_ms. Time alone does not count, because
// this process may have been stopped and continued too.
asio::awaitable<void> PoolServer::Impl::Probe(size_t model, pid_t pid) {
    asio::steady_timer timer(context_);
    HttpRequest probe;
    probe.method = "GET";
    const int64_t most = std::max<int64_t>(2, options_.silence_ms / (kProbeMs + kFetchMs));
    int64_t heard_ms = NowMs();
    for (int64_t failed = 0; failed < most;) {
        timer.expires_after(std::chrono::milliseconds(kProbeMs));
        co_await timer.async_wait(asio::use_awaitable);
        if (!IsLoaded(model, pid)) co_return;
        const int64_t requested_ms = NowMs();
        const auto answer = co_await Fetch(processes_[model].port, probe, std::string(kLivePath));
        if (answer) heard_ms = NowMs(), failed = 0;
        // (A probe that fails at once was not sent: this process has no free descriptor for it.)
        if (!answer && NowMs() - requested_ms >= kFetchMs) ++failed;
    }
    if (!IsLoaded(model, pid)) co_return;
    counts_[model].killed_why = fmt::format("its process did not answer for {} s, and was killed",
                                            (NowMs() - heard_ms) / 1000);
    ::kill(pid, SIGKILL);
}

void PoolServer::Impl::OnChildMessage(size_t model, const std::string& text, int socket) {
    Process& process = processes_[model];
    const Json said = OrderedJsonOrDiscarded(text);
    const std::string state = said.is_object() ? said.value("state", "") : "";
    std::string_view answer = "ok";
    if (state == "failed") {
        process.error = Error{static_cast<ErrorCode>(said.value("code", 0)), said.value("why", "")};
        answer = "again";  // the log has the reason from here
    }
    if (state == "serves" && schedule_.state(model) == State::kLoading) {
        const int64_t now_ms = NowMs();
        process.port = said.value("port", 0);
        process.served = true;
        process.kill_ms = ends_ ? now_ms + kUnloadMs : INT64_MAX;
        const double load_s = static_cast<double>(now_ms - process.began_ms) * 1e-3;
        counts_[model].load_s += load_s;
        SettleLoad(model, now_ms - process.began_ms);
        users_[model] = {};
        schedule_.Loaded(model, now_ms);
        Say(fmt::format("loaded {} in {:.1f} s", served_[model].name, load_s));
        asio::co_spawn(context_, Probe(model, process.pid), Rethrow);
        if (!std::exchange(first_loaded_, true) && options_.ready) options_.ready(load_s);
        return Act();
    }
    if (state != "serves") ::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL);
}

void PoolServer::Impl::Ended(size_t model, int status) {
    const State state = schedule_.state(model);
    const std::string& name = served_[model].name;
    const std::optional<Error> error = std::move(processes_[model].error);
    if (const auto& rates = options_.front.api.rates) rates->GiveBackOfEnded();
    processes_[model] = {};
    if (state == State::kLoading) {
        LoadFailed(model,
                   error ? *error
                         : Error{ErrorCode::kIo, fmt::format("its process ended: {} (the server's "
                                                             "log may have the reason)",
                                                             EndText(status))});
    } else {
        if (state == State::kUnloading || ends_) {
            Say(fmt::format("unloaded {}", name));
        } else {
            const std::string& killed_why = counts_[model].killed_why;
            Log(LogLevel::kWarning, "the process of {} ended: {}. The next request loads it again",
                name,
                !killed_why.empty() ? killed_why
                : error             ? error->message
                                    : EndText(status));
        }
        schedule_.Gone(model);
    }
    Act();
}

void PoolServer::Impl::LoadFailed(size_t model, const Error& error) {
    const std::string& name = served_[model].name;
    ++counts_[model].failures;
    SettleLoad(model, 1);  // (at least)
    const std::vector<uint64_t> waiting = schedule_.Failed(model, NowMs());
    if (!first_loaded_ && model == 0 && !ends_) {
        first_error_ = error;  // (Run reports it)
    } else if (!ends_) {
        Log(LogLevel::kWarning, "cannot load {}: {}", name, error.message);
    }
    for (const uint64_t id : waiting) Fail(id, LoadError(name, error));
}

}  // namespace weft::serve

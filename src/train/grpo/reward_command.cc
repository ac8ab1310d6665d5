#include "train/grpo/reward_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>

#include "base/child_process.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"

namespace weft::train {
namespace {

constexpr size_t kMostAnswerBytes = 1 << 20;
constexpr size_t kShownBytes = 200;
constexpr int64_t kReapMs = 2000, kLookMs = 200;

// A pipe whose end in this process does not block.
Status OpenPipe(Fd& own, Fd& other, bool writes) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        return MakeError(ErrorCode::kIo, "cannot make a pipe: {}", std::strerror(errno));
    }
    own = Fd(ends[writes ? 1 : 0]);
    other = Fd(ends[writes ? 0 : 1]);
    ::fcntl(own.get(), F_SETFL, O_NONBLOCK);
    return {};
}

// A finite number as Python's float() reads it, which JSON lacks: "+1", ".5", "1.", "01".
std::optional<double> PythonNumberOf(std::string_view line) {
    std::string_view text = Trim(line);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    double number = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
    if (error != std::errc() || end != text.end() || !std::isfinite(number)) return {};
    return number;
}

// A number, null, or an object with one of them as `reward`. Empty: neither.
std::optional<double> RewardOf(std::string_view line) {
    nlohmann::json value = JsonOrDiscarded(line);
    if (value.is_discarded()) return PythonNumberOf(line);
    if (value.is_object()) {
        const auto reward = value.find("reward");
        if (reward == value.end()) return {};
        value = nlohmann::json(*reward);
    }
    if (value.is_null()) return NAN;
    if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
    if (!value.is_number()) return {};
    return value.get<double>();
}

std::string Shown(std::string_view line) {
    const bool cut = line.size() > kShownBytes;
    return Printable(line.substr(0, kShownBytes)) + (cut ? "..." : "");
}

}  // namespace

RewardCommand::RewardCommand(std::string command, int64_t workers, int64_t timeout_s, Ends ends)
    : command_(std::move(command)),
      timeout_s_(timeout_s),
      ends_(std::move(ends)),
      workers_(static_cast<size_t>(workers)) {}

RewardCommand::~RewardCommand() {
    for (Worker& worker : workers_) Stop(worker);
}

std::string RewardCommand::Name() const {
    return fmt::format("--reward-cmd '{}'", command_);
}

Result<std::vector<double>> RewardCommand::Score(std::span<const std::string> lines) {
    std::vector<double> rewards(lines.size());
    const size_t count = workers_.size();
    for (size_t i = 0; i < count; ++i) {
        Worker& worker = workers_[i];
        const size_t begin = lines.size() * i / count, end = lines.size() * (i + 1) / count;
        worker.lines = lines.subspan(begin, end - begin);
        worker.rewards = std::span(rewards).subspan(begin, end - begin);
        worker.restarted = false;
    }
    const Status scored = ScoreAll();
    if (scored.ok()) return rewards;
    for (Worker& worker : workers_) Stop(worker);
    return scored.error();
}

Status RewardCommand::ScoreAll() {
    const Deadline deadline = Deadline::In(timeout_s_ * 1000);
    for (Worker& worker : workers_) {
        WEFT_TRY(CheckSilent(worker));
        WEFT_TRY(Start(worker));
    }
    while (!std::ranges::all_of(workers_, &Worker::done)) {
        std::vector<pollfd> polled;
        for (const Worker& worker : workers_) {
            const bool writes = worker.sent < worker.to.size();
            polled.push_back({writes ? worker.input.get() : -1, POLLOUT, 0});
            polled.push_back({worker.done() ? -1 : worker.output.get(), POLLIN, 0});
        }
        const int64_t left = std::clamp<int64_t>(deadline.left_ms(), 0, kLookMs);
        ::poll(polled.data(), polled.size(), static_cast<int>(left));
        for (size_t i = 0; i < workers_.size(); ++i) {
            if (polled[2 * i].revents != 0) WEFT_TRY(Write(workers_[i]));
            if (polled[2 * i + 1].revents != 0) WEFT_TRY(Read(workers_[i]));
        }
        if (ends_) WEFT_TRY(ends_());
        if (!deadline.expired()) continue;
        const auto late = std::ranges::find_if(workers_, [](const auto& w) { return !w.done(); });
        if (late == workers_.end()) break;
        return MakeError(
            ErrorCode::kTimeout,
            "{}: {} of {} answers within {} s. Does it write a line for each line, and "
            "flush its output? --reward-timeout sets the limit",
            Name(), late->answered, late->lines.size(), timeout_s_);
    }
    return {};
}

// Checks that a process has written nothing since its last answer, as no text would belong to it.
Status RewardCommand::CheckSilent(Worker& worker) const {
    if (worker.pid < 0) return {};
    std::array<char, 4096> buffer;
    if (worker.from.empty()) {
        const ssize_t got = ::read(worker.output.get(), buffer.data(), buffer.size());
        if (got > 0) worker.from.assign(buffer.data(), static_cast<size_t>(got));
    }
    return worker.from.empty() ? Status() : NoCompletion(worker.from);
}

Error RewardCommand::NoCompletion(std::string_view written) const {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: a line without a completion to judge: '{}'. Expected one line for each "
                     "line of input",
                     Name(), Shown(written.substr(0, written.find('\n'))));
}

// Starts the process if it does not run, and gives it its lines.
Status RewardCommand::Start(Worker& worker) const {
    worker.to.clear();
    for (const std::string& line : worker.lines) worker.to += line + "\n";
    worker.sent = worker.answered = 0;
    if (worker.pid >= 0) return {};
    worker.from.clear();
    Fd input, output;
    WEFT_TRY(OpenPipe(worker.input, input, true));
    WEFT_TRY(OpenPipe(worker.output, output, false));
    const auto started =
        StartChild("/bin/sh", {"sh", "-c", command_}, {.input = input.get()}, output.get(), -1);
    if (!started.ok()) {
        return MakeError(ErrorCode::kIo, "{}: {}", Name(), started.error().message);
    }
    worker.pid = *started;
    return {};
}

// (The output shows whether the process has ended.)
Status RewardCommand::Write(Worker& worker) const {
    const std::string_view rest = std::string_view(worker.to).substr(worker.sent);
    const ssize_t wrote = ::write(worker.input.get(), rest.data(), rest.size());
    if (wrote > 0) worker.sent += static_cast<size_t>(wrote);
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) worker.sent = worker.to.size();
    return {};
}

Status RewardCommand::Read(Worker& worker) const {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(worker.output.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (got <= 0) return Ended(worker);
    worker.from.append(buffer.data(), static_cast<size_t>(got));
    return TakeAnswers(worker);
}

Status RewardCommand::TakeAnswers(Worker& worker) const {
    size_t begin = 0;
    for (size_t end = worker.from.find('\n'); end != std::string::npos;
         end = worker.from.find('\n', begin)) {
        const std::string_view line = std::string_view(worker.from).substr(begin, end - begin);
        if (worker.done()) return NoCompletion(line);
        const std::optional<double> reward = RewardOf(line);
        if (!reward || std::abs(*reward) > kMostReward) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: answer {} is '{}'; expected a finite number (at most {:g}), "
                             "null, or {{\"reward\": number}} on a line of its own",
                             Name(), worker.answered + 1, Shown(line), kMostReward);
        }
        worker.rewards[worker.answered++] = *reward;
        begin = end + 1;
    }
    worker.from.erase(0, begin);
    if (worker.from.size() <= kMostAnswerBytes) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: a line of more than {} bytes", Name(),
                     kMostAnswerBytes);
}

// The process closed its output.
Status RewardCommand::Ended(Worker& worker) const {
    worker.output.Reset();
    int status = 0;
    const Deadline patience = Deadline::In(kReapMs);
    while (::waitpid(worker.pid, &status, WNOHANG) == 0) {
        if (patience.expired()) ::kill(-worker.pid, SIGKILL);  // (it still runs, without an output)
        ::usleep(1000);
    }
    worker.pid = -1;
    const std::string how = WIFEXITED(status)
                                ? fmt::format("ended with status {}", WEXITSTATUS(status))
                                : fmt::format("ended by signal {}", WTERMSIG(status));
    const std::string text = fmt::format("{} {} after {} of {} answers", Name(), how,
                                         worker.answered, worker.lines.size());
    if (worker.restarted) return MakeError(ErrorCode::kIo, "{}, for the second time", text);
    Log(LogLevel::kWarning, "{}: it is started again", text);
    worker.restarted = true;
    return Start(worker);
}

void RewardCommand::Stop(Worker& worker) {
    if (worker.pid < 0) return;
    worker.input.Reset();
    worker.output.Reset();
    ::kill(-worker.pid, SIGKILL);
    ::waitpid(worker.pid, nullptr, 0);
    worker.pid = -1;
}

}  // namespace weft::train

#include "cluster/join/dial.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/start_thread.h"

namespace weft::cluster {
namespace {

constexpr int64_t kBusyRetryMs = 100;
// Calls that fail alike before their error is the answer. A worker hangs up when it has many
// callers: among many fast callers from the caller's own host it drops nearly all calls, so a call
// that it dropped has the most retries (five seconds).
constexpr int64_t kDroppedRetryMs = 25;
constexpr int kMostRefused = 40;   // the port refuses connections
constexpr int kMostDropped = 200;  // it accepts one and closes it without a frame
constexpr int kMostCutOff = 40;    // it closes one after a frame of the worker
// How far a call got.
enum class Reached { kNothing, kPort, kWorker };
// Limit of a call to a host that may be down: a later call may reach it.
constexpr int64_t kHostCallMs = 3000;
// A shorter call without an answer does not mean that the worker is missing.
constexpr int64_t kTellingCallMs = 1000;
constexpr int64_t kLookMs = 20;
// How long to hold some workers while others are busy: their last job may just be ending.
constexpr int64_t kHoldMs = 500;
constexpr const char* kWaitsForAll =
    "rank 0 released this worker: others of the job are busy, and it waits for all of them";

Error Silent(const std::string& name, const Deadline& deadline) {
    return MakeError(
        ErrorCode::kTimeout,
        "{}: no answer to the handshake within {} ms. Does a weft worker listen on that port?",
        name, deadline.length_ms());
}

// The waits of one call: each ends at the deadline, or once `cancel` is readable.
struct Waiter {
    std::string name;
    Deadline deadline;
    int cancel = -1;

    // Errors: kTimeout (the deadline), kCancelled.
    Status Await(int fd, short events) const {
        pollfd entries[] = {{fd, events, 0}, {cancel, POLLIN, 0}};
        int ready = 0;
        do {
            ready = ::poll(entries, 2, static_cast<int>(deadline.left_ms()));
        } while (ready < 0 && errno == EINTR);
        if (entries[1].revents != 0) {
            return MakeError(ErrorCode::kCancelled, "{}: the connection attempt was cancelled",
                             name);
        }
        return ready > 0 ? Status() : Status(Silent(name, deadline));
    }
};

Status SendAll(int fd, View bytes, const Waiter& waiter) {
    while (!bytes.empty()) {
        const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put > 0) bytes = bytes.subspan(static_cast<size_t>(put));
        if (put >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN) break;  // reading reports the reason
        WEFT_TRY(waiter.Await(fd, POLLOUT));
    }
    return {};
}

// Reads exactly one plain frame: after the last frame of the handshake the worker's rank may
// already send data of its session. The frame points into `in`, which must be empty before.
Result<Frame> ReadFrame(int fd, Bytes& in, const Waiter& waiter) {
    const std::string& name = waiter.name;
    std::array<std::byte, kMostBeforeAuth> buffer;
    while (true) {
        WEFT_TRY(waiter.Await(fd, POLLIN));
        const ssize_t seen = ::recv(fd, buffer.data(), buffer.size(), MSG_PEEK);
        if (seen < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (seen <= 0) {
            return MakeError(ErrorCode::kIo,
                             "{}: it closed the connection during the handshake. Its log says why",
                             name);
        }
        const size_t before = in.size();
        in.insert(in.end(), buffer.data(), buffer.data() + seen);
        size_t consumed = 0;
        auto frame = ParseFrame(in, false, &consumed);
        if (!frame.ok()) {
            return MakeError(ErrorCode::kCorrupt, "{}: {}. Does a weft worker listen on that port?",
                             name, frame.error().message);
        }
        const size_t take = frame->has_value() ? consumed - before : static_cast<size_t>(seen);
        if (::recv(fd, buffer.data(), take, 0) != static_cast<ssize_t>(take)) {
            return MakeError(ErrorCode::kIo, "{}: its connection broke during the handshake", name);
        }
        if (frame->has_value()) return **frame;
    }
}

Status Prove(int fd, ClientHandshake& handshake, const Waiter& waiter, Reached& reached) {
    reached = Reached::kPort;
    Bytes out = handshake.First();
    while (!handshake.done()) {
        WEFT_TRY(SendAll(fd, out, waiter));
        Bytes in;
        WEFT_ASSIGN(const Frame frame, ReadFrame(fd, in, waiter));
        reached = Reached::kWorker;
        WEFT_ASSIGN(out, handshake.On(frame));
    }
    return {};
}

// Connects to the last host of a path: to its worker, or to `port`.
Result<Fd> FollowPath(const std::string& address, uint16_t port, const Bytes& key,
                      const Identity& identity, const Waiter& waiter) {
    const WorkerPath path = PathOf(address);
    WEFT_ASSIGN(const Address to, ParseAddress(path.first));
    WEFT_ASSIGN(Fd fd, Dial(to, waiter.name, waiter.deadline, waiter.cancel));
    for (size_t i = 0; i < path.names.size(); ++i) {
        const std::string who =
            i == 0 ? waiter.name : fmt::format("{} ({})", waiter.name, path.names[i - 1]);
        ClientHandshake handshake(who, key, waiter.deadline.length_ms(), identity);
        PlaceRequest request{.forward = path.names[i]};
        if (i + 1 == path.names.size()) request.forward_port = port;
        handshake.SetRequest(request);
        Reached reached;
        WEFT_TRY(Prove(fd.get(), handshake, waiter, reached));
    }
    return fd;
}

Result<Dialled> Attempt(const std::string& address, const Bytes& key, const Identity& identity,
                        ClientHandshake& handshake, const Waiter& waiter, Reached& reached) {
    WEFT_ASSIGN(Fd fd, FollowPath(address, 0, key, identity, waiter));
    WEFT_TRY(Prove(fd.get(), handshake, waiter, reached));
    const std::string warning = handshake.BuildWarning();
    if (!warning.empty()) Log(LogLevel::kWarning, "{}", warning);
    return Dialled{std::move(fd), handshake.session()};
}

bool IsFinal(const Error& error) {
    return error.code != ErrorCode::kTimeout && error.code != ErrorCode::kIo;
}

// Calls to workers, each on its own thread. The destructor cancels calls that are no longer needed
// (a stop request, or another call failed), within milliseconds.
class HostCalls {
  public:
    HostCalls(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
              const Gathering& gathering)
        : addresses_(addresses),
          key_(key),
          patient_(patient),
          gathering_(gathering),
          cancel_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
          calls_(addresses.size()),
          request_{.ticket = gathering.ticket, .returns = gathering.calls_back} {}
    ~HostCalls();

    // Calls the worker of `rank`, unless a call runs or failed permanently.
    void Begin(int rank);
    std::vector<Arrival> TakeArrivals();
    // Once no call can succeed: the first error by rank; the others go to the log.
    Status Failure(const std::vector<int>& missing) const;
    // "2 of 3 workers: b:7000 (...), c:7000 (...)".
    std::string Missing(const std::vector<int>& missing) const;
    // With several workers: takes a slot of each, or none (see GatherHosts).
    void MindLines(RendezvousState& rendezvous);

  private:
    struct Call {
        std::thread thread{};  // main thread only; the rest needs the lock
        bool runs = false;
        std::optional<Error> error{};
        std::optional<Dialled> dialled{};
        std::optional<PlaceAnswer> answer{};  // of a busy worker
        Deadline stale = Deadline::In(0);     // when the answer is too old
    };
    void Run(size_t at, const Deadline& deadline);
    std::string MissingLocked(const std::vector<int>& missing) const;
    PlaceRequest Request() const;
    void OnPlaceAnswer(size_t at, const PlaceAnswer& answer);
    bool IsKept(const Call& call) const {
        return call.answer.has_value() && call.answer->free && !call.stale.expired();
    }
    // The call ended because of the other calls: its worker reserved a slot.
    static bool WaitsForOthers(const Call& call) {
        return IsBusy(*call.error) && call.answer.has_value() && call.answer->free;
    }
    bool IsRefused(const Call& call) const {
        return call.answer.has_value() && !call.answer->free && !call.stale.expired();
    }

    const std::vector<std::string> addresses_;
    const Bytes key_;
    const bool patient_;
    const Gathering gathering_;
    const Fd cancel_;  // readable: all calls are cancelled
    mutable std::mutex mutex_;
    std::vector<Call> calls_;
    PlaceRequest request_;
    std::optional<Deadline> holds_;  // main thread only: how long to hold some of the workers
};

HostCalls::~HostCalls() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(cancel_.get(), &one, sizeof one);
    for (Call& call : calls_) {
        if (call.thread.joinable()) call.thread.join();
    }
}

void HostCalls::Begin(int rank) {
    const auto at = static_cast<size_t>(rank) - 1;
    Call& call = calls_[at];
    {
        const std::lock_guard lock(mutex_);
        if (call.runs || (call.error.has_value() && (!patient_ || IsFinal(*call.error)))) return;
        call.runs = true;
    }
    if (call.thread.joinable()) call.thread.join();
    const int64_t left_ms = gathering_.deadline.left_ms();
    const Deadline deadline = Deadline::In(patient_ ? std::min(kHostCallMs, left_ms) : left_ms);
    // (A patient caller tries again.)
    const int64_t wait_ms = patient_ ? 0 : std::min(kThreadMs, left_ms);
    Status started =
        StartThread(call.thread, [this, at, deadline] { Run(at, deadline); }, {.wait_ms = wait_ms});
    if (started.ok()) return;
    const std::lock_guard lock(mutex_);
    call.runs = false;
    call.error = started.error();
}

void HostCalls::Run(size_t at, const Deadline& deadline) {
    const LineTalk line{[this] { return Request(); },
                        [this, at](const PlaceAnswer& answer) { OnPlaceAnswer(at, answer); }};
    auto dialled =
        DialWorker(addresses_[at], key_, gathering_.timeout_ms, deadline, {}, cancel_.get(), line);
    const std::lock_guard lock(mutex_);
    Call& call = calls_[at];
    call.runs = false;
    if (dialled.ok()) {
        call.dialled = std::move(*dialled);
        call.answer.reset();
        call.error.reset();
        return;
    }
    // The error of an earlier call is more specific than the last call's, which the end of the wait
    // cut short.
    const bool cut = patient_ && deadline.length_ms() < kTellingCallMs &&
                     dialled.error().code == ErrorCode::kTimeout && !IsBusy(dialled.error());
    if (!cut || !call.error.has_value()) call.error = dialled.error();
}

PlaceRequest HostCalls::Request() const {
    const std::lock_guard lock(mutex_);
    return request_;
}

void HostCalls::OnPlaceAnswer(size_t at, const PlaceAnswer& answer) {
    const std::lock_guard lock(mutex_);
    request_.number = std::max(request_.number, answer.number);
    calls_[at].answer = answer;
    calls_[at].stale = Deadline::In(kAbsentMs);
}

void HostCalls::MindLines(RendezvousState& rendezvous) {
    const std::vector<int> missing = rendezvous.Missing();
    if (addresses_.size() < 2 || missing.empty()) return;
    const std::lock_guard lock(mutex_);
    const auto call = [&](int rank) -> Call& { return calls_[static_cast<size_t>(rank) - 1]; };
    if (!request_.take) {
        if (missing.size() < addresses_.size()) rendezvous.ReleaseAll(kWaitsForAll);
        if (!std::ranges::all_of(missing, [&](int rank) { return IsKept(call(rank)); })) return;
        request_.take = true;
        for (Call& each : calls_) each.answer.reset();
        return;
    }
    const bool refused =
        std::ranges::any_of(missing, [&](int rank) { return IsRefused(call(rank)); });
    if (!refused) return holds_.reset();
    if (!holds_.has_value()) holds_ = Deadline::In(kHoldMs);
    const bool holds = missing.size() < addresses_.size();
    if (holds && !holds_->expired()) return;
    holds_.reset();
    request_.take = false;
    rendezvous.ReleaseAll(kWaitsForAll);
}

std::vector<Arrival> HostCalls::TakeArrivals() {
    const std::lock_guard lock(mutex_);
    std::vector<Arrival> arrivals;
    for (size_t i = 0; i < calls_.size(); ++i) {
        std::optional<Dialled>& dialled = calls_[i].dialled;
        if (!dialled.has_value()) continue;
        arrivals.push_back({std::move(dialled->fd), dialled->session, "", static_cast<int>(i) + 1});
        dialled.reset();
    }
    return arrivals;
}

Status HostCalls::Failure(const std::vector<int>& missing) const {
    if (missing.empty()) return {};
    const std::lock_guard lock(mutex_);
    std::vector<Error> errors, of_kept;
    bool final = false, runs = false;
    for (const int rank : missing) {
        const Call& call = calls_[static_cast<size_t>(rank) - 1];
        runs = runs || call.runs || call.dialled.has_value();
        if (call.error.has_value()) {
            (WaitsForOthers(call) ? of_kept : errors).push_back(*call.error);
        }
        final = final || (call.error.has_value() && IsFinal(*call.error));
    }
    if (errors.empty()) errors = std::move(of_kept);
    const bool over = !runs || (patient_ && (final || gathering_.deadline.expired()));
    if (!over || (errors.empty() && runs)) return {};
    if (errors.empty()) {
        return MakeError(ErrorCode::kTimeout,
                         "{}: connected, and closed the connection before the job began; the logs "
                         "of these workers give the reason",
                         MissingLocked(missing));
    }
    const auto first = final ? std::ranges::find_if(errors, IsFinal) : errors.begin();
    for (auto error = errors.begin(); error != errors.end(); ++error) {
        if (error != first) Log(LogLevel::kError, "{}", error->message);
    }
    if (!patient_ || final) return *first;
    return MakeError(first->code, "{} of {} workers did not connect within {} (--wait): {}",
                     missing.size(), addresses_.size(),
                     SecondsText(gathering_.deadline.length_ms()), first->message);
}

std::string HostCalls::Missing(const std::vector<int>& missing) const {
    const std::lock_guard lock(mutex_);
    return MissingLocked(missing);
}

std::string HostCalls::MissingLocked(const std::vector<int>& missing) const {
    std::string names;
    for (const int rank : missing) {
        const auto at = static_cast<size_t>(rank) - 1;
        names += (names.empty() ? "" : ", ") + addresses_[at];
        const std::optional<PlaceAnswer>& answer = calls_[at].answer;
        if (!answer.has_value() || calls_[at].stale.expired()) continue;
        const std::string line = answer->free ? "ready" : AnswerText(*answer);
        if (!line.empty()) names += " (" + line + ")";
    }
    return fmt::format("{} of {} workers: {}", missing.size(), addresses_.size(), names);
}

}  // namespace

Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity, int cancel,
                           const LineTalk& line) {
    const Waiter waiter{"worker " + address, deadline, cancel};
    std::optional<Error> hung_up, refused;
    for (int closed = 0, cut_off = 0;;) {
        Reached reached = Reached::kNothing;
        ClientHandshake handshake(waiter.name, key, timeout_ms, identity);
        if (line.request) handshake.SetRequest(line.request());
        auto dialled = Attempt(address, key, identity, handshake, waiter, reached);
        if (dialled.ok()) return dialled;
        if (line.heard && handshake.answer().has_value()) line.heard(*handshake.answer());
        const bool busy = dialled.error().code == ErrorCode::kTimeout;
        const bool failed = dialled.error().code == ErrorCode::kIo;
        const bool unheard = failed && reached != Reached::kWorker;
        if (unheard) hung_up = dialled.error();
        if (IsBusy(dialled.error())) refused = dialled.error();
        const int most = reached == Reached::kPort ? kMostDropped : kMostRefused;
        const bool again = busy || (unheard && ++closed <= most) ||
                           (failed && !unheard && ++cut_off <= kMostCutOff);
        if (!again || deadline.left_ms() <= kBusyRetryMs) {
            // The earlier answer is more specific than a last call that the deadline cut short.
            if (busy && refused.has_value()) return *refused;
            return again ? hung_up.value_or(dialled.error()) : dialled.error();
        }
        const int64_t pause_ms = unheard ? kDroppedRetryMs : kBusyRetryMs;
        if (!NapUnless(cancel, pause_ms)) return dialled.error();
    }
}

WorkerPath PathOf(const std::string& address) {
    WorkerPath path;
    size_t begin = 0;
    while (true) {
        const size_t end = address.find('>', begin);
        std::string part = address.substr(begin, end - begin);
        if (begin == 0) {
            path.first = std::move(part);
        } else {
            path.names.push_back(std::move(part));
        }
        if (end == address.npos) return path;
        begin = end + 1;
    }
}

Result<Fd> DialForwarded(const std::string& address, uint16_t port, const Bytes& key,
                         const Deadline& deadline) {
    return FollowPath(address, port, key, {}, {"worker " + address, deadline, -1});
}

Result<PlaceAnswer> QueryWorker(const std::string& address, const Bytes& key,
                                const Deadline& deadline) {
    const Fd over(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));  // readable once there is an answer
    std::optional<PlaceAnswer> answer;
    const LineTalk line{[] { return PlaceRequest{.take = false}; },
                        [&](const PlaceAnswer& heard) {
                            answer = heard;
                            const uint64_t one = 1;
                            [[maybe_unused]] const ssize_t put =
                                ::write(over.get(), &one, sizeof one);
                        }};
    const auto dialled =
        DialWorker(address, key, deadline.length_ms(), deadline, {}, over.get(), line);
    if (answer.has_value()) return *answer;
    if (!dialled.ok()) return dialled.error();
    return MakeError(ErrorCode::kCorrupt, "worker {}: it began a job that nobody sent", address);
}

Status GatherHosts(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
                   RankRegistry& registry, const Gathering& gathering) {
    RendezvousState rendezvous(static_cast<int>(addresses.size()) + 1, registry, gathering);
    HostCalls calls(addresses, key, patient, gathering);
    while (true) {
        for (Arrival& arrival : calls.TakeArrivals()) rendezvous.Take(std::move(arrival));
        calls.MindLines(rendezvous);
        WEFT_ASSIGN(const bool complete, rendezvous.Complete());
        if (complete) return {};
        for (const int rank : rendezvous.Missing()) {
            if (!rendezvous.expired()) calls.Begin(rank);
        }
        WEFT_TRY(calls.Failure(rendezvous.Missing()));
        rendezvous.Tell([&] { return "waiting for " + calls.Missing(rendezvous.Missing()); });
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
}

}  // namespace weft::cluster

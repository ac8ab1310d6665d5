#include "cluster/dial.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"

namespace weft::cluster {
namespace {

constexpr int64_t kBusyRetryMs = 100;
// How often a worker may hang up before it has said a word, until that counts as an answer (a
// second, as it is called again soon); and once it has, which it does amid a crowd of callers that
// talk. Amid a fast crowd from the caller's own host most calls are dropped.
constexpr int64_t kDroppedRetryMs = 25;
constexpr int kMostDropped = 40;
constexpr int kMostCutOff = 40;
// A call of a host that may not be up yet: the next one comes to one that is.
constexpr int64_t kHostCallMs = 3000;
constexpr int64_t kLookMs = 20;

Error Silent(const std::string& name, const Deadline& deadline) {
    return MakeError(ErrorCode::kTimeout,
                     "{}: no answer to the handshake within {} ms. Is that port a weft worker's?",
                     name, deadline.length_ms());
}

// Whether `events` came before the deadline.
bool Await(int fd, short events, const Deadline& deadline) {
    pollfd entry{fd, events, 0};
    int ready = 0;
    do {
        ready = ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

Status SendAll(int fd, View bytes, const std::string& name, const Deadline& deadline) {
    while (!bytes.empty()) {
        const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put > 0) bytes = bytes.subspan(static_cast<size_t>(put));
        if (put < 0 && errno == EAGAIN && !Await(fd, POLLOUT, deadline)) {
            return Silent(name, deadline);
        }
        if (put < 0 && errno != EAGAIN && errno != EINTR) break;  // reading tells the reason
    }
    return {};
}

// Takes one whole plain frame from the socket and not a byte more: behind the last one of the
// handshake may already follow what the worker's rank says, which is not for us.
// The frame points into `in`, which is empty before.
Result<Frame> ReadFrame(int fd, Bytes& in, const std::string& name, const Deadline& deadline) {
    std::array<std::byte, kMostBeforeAuth> buffer;
    while (true) {
        if (!Await(fd, POLLIN, deadline)) return Silent(name, deadline);
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
            return MakeError(ErrorCode::kCorrupt, "{}: {}. Is that port a weft worker's?", name,
                             frame.error().message);
        }
        const size_t take = frame->has_value() ? consumed - before : static_cast<size_t>(seen);
        if (::recv(fd, buffer.data(), take, 0) != static_cast<ssize_t>(take)) {
            return MakeError(ErrorCode::kIo, "{}: its connection broke during the handshake", name);
        }
        if (frame->has_value()) return **frame;
    }
}

// heard: whether the worker has said anything.
Result<Dialled> Attempt(const std::string& address, const Bytes& key, int64_t timeout_ms,
                        const Deadline& deadline, const Identity& identity, bool& heard) {
    const std::string name = "worker " + address;
    WEFT_ASSIGN(const Address to, ParseAddress(address));
    WEFT_ASSIGN(Fd fd, Dial(to, name, deadline));
    ClientHandshake handshake(name, key, timeout_ms, identity);
    Bytes out = handshake.First();
    while (!handshake.done()) {
        WEFT_TRY(SendAll(fd.get(), out, name, deadline));
        Bytes in;
        WEFT_ASSIGN(const Frame frame, ReadFrame(fd.get(), in, name, deadline));
        heard = true;
        WEFT_ASSIGN(out, handshake.On(frame));
    }
    return Dialled{std::move(fd), handshake.session()};
}

bool IsFinal(const Error& error) {
    return error.code != ErrorCode::kTimeout && error.code != ErrorCode::kIo;
}

// Calls of workers, each in a thread of its own. The threads outlive whoever does not wait for them
// any more (the user's wish to stop, an error of another): what they touch is theirs as well.
class HostCalls {
  public:
    HostCalls(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
              const Gathering& gathering)
        : shared_(std::make_shared<Shared>()), patient_(patient), gathering_(gathering) {
        shared_->addresses = addresses;
        shared_->key = key;
        shared_->calls.resize(addresses.size());
    }

    // Calls the worker of `rank`, unless a call of it runs, or failed for good.
    void Begin(int rank);
    std::vector<Arrival> TakeArrivals();
    // Once nothing is left to wait for: the first error by rank; the others become log lines.
    Status Failure(const std::vector<int>& missing) const;
    // "2 of 3 workers: b:7000 (...), c:7000 (...)".
    std::string Missing(const std::vector<int>& missing) const;

  private:
    struct Call {
        bool runs = false;
        std::optional<Error> error{};
        std::optional<Dialled> dialled{};
    };
    struct Shared {
        std::vector<std::string> addresses;
        Bytes key;
        std::mutex mutex;
        std::vector<Call> calls;
    };
    std::shared_ptr<Shared> shared_;
    const bool patient_;
    const Gathering gathering_;
};

void HostCalls::Begin(int rank) {
    const auto at = static_cast<size_t>(rank) - 1;
    {
        const std::lock_guard lock(shared_->mutex);
        Call& call = shared_->calls[at];
        if (call.runs || (call.error.has_value() && (!patient_ || IsFinal(*call.error)))) return;
        call.runs = true;
    }
    const int64_t left_ms = gathering_.deadline.left_ms();
    const Deadline deadline = Deadline::In(patient_ ? std::min(kHostCallMs, left_ms) : left_ms);
    std::thread([shared = shared_, at, deadline, timeout_ms = gathering_.timeout_ms] {
        auto dialled = DialWorker(shared->addresses[at], shared->key, timeout_ms, deadline);
        const std::lock_guard lock(shared->mutex);
        Call& call = shared->calls[at];
        call.runs = false;
        call.error.reset();
        if (dialled.ok()) {
            call.dialled = std::move(*dialled);
        } else {
            call.error = dialled.error();
        }
    }).detach();
}

std::vector<Arrival> HostCalls::TakeArrivals() {
    const std::lock_guard lock(shared_->mutex);
    std::vector<Arrival> arrivals;
    for (size_t i = 0; i < shared_->calls.size(); ++i) {
        std::optional<Dialled>& dialled = shared_->calls[i].dialled;
        if (!dialled.has_value()) continue;
        arrivals.push_back({std::move(dialled->fd), dialled->session, "", static_cast<int>(i) + 1});
        dialled.reset();
    }
    return arrivals;
}

Status HostCalls::Failure(const std::vector<int>& missing) const {
    const std::lock_guard lock(shared_->mutex);
    std::vector<Error> errors;
    bool final = false, runs = false;
    for (const int rank : missing) {
        const Call& call = shared_->calls[static_cast<size_t>(rank) - 1];
        runs = runs || call.runs || call.dialled.has_value();
        if (call.error.has_value()) errors.push_back(*call.error);
        final = final || (call.error.has_value() && IsFinal(*call.error));
    }
    const bool over = !runs || (patient_ && (final || gathering_.deadline.expired()));
    if (!over || (errors.empty() && runs)) return {};
    if (errors.empty()) return MakeError(ErrorCode::kTimeout, "workers came, and left again");
    const auto first = final ? std::ranges::find_if(errors, IsFinal) : errors.begin();
    for (auto error = errors.begin(); error != errors.end(); ++error) {
        if (error != first) Log(LogLevel::kError, "{}", error->message);
    }
    if (!patient_ || final) return *first;
    return MakeError(first->code, "{} of {} workers did not come within {} (--wait): {}",
                     missing.size(), shared_->addresses.size(),
                     SecondsText(gathering_.deadline.length_ms()), first->message);
}

std::string HostCalls::Missing(const std::vector<int>& missing) const {
    const std::lock_guard lock(shared_->mutex);
    std::string names;
    for (const int rank : missing) {
        const auto at = static_cast<size_t>(rank) - 1;
        names += (names.empty() ? "" : ", ") + shared_->addresses[at];
    }
    return fmt::format("{} of {} workers: {}", missing.size(), shared_->addresses.size(), names);
}

}  // namespace

Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity) {
    std::optional<Error> hung_up;
    for (int dropped = 0, cut_off = 0;;) {
        bool heard = false;
        auto dialled = Attempt(address, key, timeout_ms, deadline, identity, heard);
        if (dialled.ok()) return dialled;
        const bool busy = dialled.error().code == ErrorCode::kTimeout;
        // A worker amid a crowd of callers may hang up on one that it has not listened to yet.
        const bool unheard = !heard && dialled.error().code == ErrorCode::kIo;
        if (unheard) hung_up = dialled.error();
        const bool cut = heard && dialled.error().code == ErrorCode::kIo;
        const bool again =
            busy || (unheard && ++dropped <= kMostDropped) || (cut && ++cut_off <= kMostCutOff);
        if (!again || deadline.left_ms() <= kBusyRetryMs) {
            return hung_up.value_or(dialled.error());
        }
        const int64_t pause_ms = unheard ? kDroppedRetryMs : kBusyRetryMs;
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
}

Status GatherHosts(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
                   Company& company, const Gathering& gathering) {
    Roll roll(static_cast<int>(addresses.size()) + 1, company, gathering);
    HostCalls calls(addresses, key, patient, gathering);
    while (true) {
        for (Arrival& arrival : calls.TakeArrivals()) roll.Take(std::move(arrival));
        WEFT_ASSIGN(const bool complete, roll.Complete());
        if (complete) return {};
        for (const int rank : roll.Missing()) {
            if (!roll.expired()) calls.Begin(rank);
        }
        WEFT_TRY(calls.Failure(roll.Missing()));
        roll.Tell([&] { return "waiting for " + calls.Missing(roll.Missing()); });
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
}

}  // namespace weft::cluster

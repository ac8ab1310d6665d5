#include "cluster/dial.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

Result<std::vector<Dialled>> DialWorkers(const std::vector<std::string>& addresses,
                                         const Bytes& key, int64_t timeout_ms,
                                         const Deadline& deadline) {
    std::vector<std::optional<Result<Dialled>>> results(addresses.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < addresses.size(); ++i) {
        threads.emplace_back(
            [&, i] { results[i] = DialWorker(addresses[i], key, timeout_ms, deadline); });
    }
    for (std::thread& thread : threads) thread.join();
    std::optional<Error> first;
    std::vector<Dialled> dialled;
    for (auto& result : results) {
        if (result->ok()) {
            dialled.push_back(std::move(**result));
        } else if (!first.has_value()) {
            first = result->error();
        } else {
            Log(LogLevel::kError, "{}", result->error().message);
        }
    }
    if (first.has_value()) return *first;
    return dialled;
}

}  // namespace weft::cluster

#include "doctor/reach.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/on_threads.h"
#include "doctor/network.h"
#include "doctor/text.h"
#include "net/socket.h"

namespace weft::doctor {
namespace {

constexpr useconds_t kPauseUs = 20'000;
// Each connection has a thread.
constexpr size_t kMostReached = 1024, kMostPortsOfReach = 2;
constexpr int64_t kMostPeers = 1 << 16, kMostReachMs = 60'000;

std::string DialPeer(const std::string& address, uint16_t port, const Deadline& deadline) {
    for (;;) {
        const Result<Fd> dialed = net::DialTcp(address, port, deadline);
        if (dialed.ok()) return "open";
        const Error& error = dialed.error();
        if (error.code == ErrorCode::kTimeout) return "filtered";
        // The peer may not listen yet.
        const bool refused = Contains(error.message, "refused");
        const std::string outcome =
            refused ? "refused" : "failed: " + error.message.substr(error.message.rfind(": ") + 2);
        if (!refused || deadline.left_ms() < 100) return outcome;
        ::usleep(5 * kPauseUs);
    }
}

}  // namespace

Result<std::string> ReachPeers(const ReachOptions& options) {
    const Deadline deadline = Deadline::In(options.timeout_ms);
    std::vector<std::string> outcomes(options.addresses.size() * options.ports.size());
    std::vector<Fd> listeners;
    for (const uint16_t port : options.ports) {
        Result<Fd> listener = net::ListenTcp("", port);
        if (listener.ok()) listeners.push_back(std::move(*listener));
    }
    std::atomic<size_t> dialed = 0;
    const auto accept = [&] {
        std::vector<size_t> accepted(listeners.size());
        const auto waits = [&](size_t count) { return count < options.peers; };
        while (!deadline.expired() &&
               (dialed < outcomes.size() || std::ranges::any_of(accepted, waits))) {
            for (size_t i = 0; i < listeners.size(); ++i) {
                while (net::Accept(listeners[i].get()).valid()) ++accepted[i];
            }
            ::usleep(kPauseUs);
        }
    };
    // All connections start at once, because they share one deadline.
    WEFT_TRY(AllAtOnce(outcomes.size() + 1, [&](size_t i) {
        if (i == outcomes.size()) return accept();
        const std::string& address = options.addresses[i / options.ports.size()];
        const uint16_t port = options.ports[i % options.ports.size()];
        outcomes[i] = fmt::format("{} {} {}\n", address, port, DialPeer(address, port, deadline));
        ++dialed;
    }));
    return fmt::format("{}", fmt::join(outcomes, ""));
}

std::string ReachText(const ReachOptions& options) {
    const bool usual = options.timeout_ms == kReachMs;
    return fmt::format("{} {} {}{}", fmt::join(options.ports, ","), options.peers,
                       fmt::join(options.addresses, ","),
                       usual ? "" : fmt::format(" {}", options.timeout_ms));
}

ReachOptions ParseReach(const std::string& text) {
    ReachOptions options;
    const auto words = Words(std::string_view(text));
    if (words.size() != 3 && words.size() != 4) return options;
    for (std::string_view word : Split(words[0], ',')) {
        const auto port = Integer(word);
        if (!port || *port <= 0 || *port > 65535) return {};
        if (options.ports.size() < kMostPortsOfReach) {
            options.ports.push_back(static_cast<uint16_t>(*port));
        }
    }
    options.peers =
        static_cast<size_t>(std::clamp<int64_t>(Integer(words[1]).value_or(0), 0, kMostPeers));
    if (words.size() == 4) {
        options.timeout_ms =
            std::clamp<int64_t>(Integer(words[3]).value_or(0), kReachMs, kMostReachMs);
    }
    for (std::string_view word : Split(words[2], ',')) {
        if (!ParseIpv4(word)) return {};
        if (options.addresses.size() < kMostReached) options.addresses.emplace_back(word);
    }
    return options;
}

}  // namespace weft::doctor

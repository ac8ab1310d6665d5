// Limits the callers that have not proved that they have the shared key, so that callers without
// the key cannot keep out one that has it.
//
// A listener reads a caller's first bytes at once after it accepts the connection. A caller that
// has sent a valid hello speaks; any other is silent. Each kind has its own limit, so silent
// callers never displace one that speaks. Beyond a limit, one caller of that kind is dropped from
// the network with the most such callers, so a crowd from one network cannot block others. It is a
// random caller of that network (of all such networks if several are largest). If the oldest were
// dropped, a fast crowd would block every caller that needs a moment to answer. If the newest were
// dropped, a few silent callers would block all later ones.
//
// A hello costs the listener a key pair, and a proof that follows costs a shared secret. So the
// listener answers at most kMostHellos hellos of a network in each kHelloPeriodNs that no proof of
// the key follows. While more callers wait than the listener accepts at a time, it also refuses
// most hellos of a network after the first kFewHellos. The period is short, and the refused hellos
// are random ones, so that a peer of a crowd's network gets in after a few calls.
//
// NetworkOf (net/addresses.h) defines a caller's network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace weft::cluster {

// Most callers accepted at a time, between looks at the present ones.
constexpr int kCallersATurn = 32;
// Answered hellos of a network in a period: 1000 a second. Each costs 0.1 ms of a core, a refused
// one a third of that. The period is not a multiple of the pause of a caller that calls again.
constexpr int64_t kHelloPeriodNs = 40'000'000;
constexpr int kMostHellos = 40;
constexpr int kFewHellos = 4;

struct Unproved {
    std::string_view network;
    bool speaks = false;
};

class PendingLimit {
  public:
    PendingLimit(size_t most_silent, size_t most_speaking)
        : most_silent_(most_silent), most_speaking_(most_speaking) {}
    // Index of the caller to drop; nullopt: all may stay.
    std::optional<size_t> Excess(std::span<const Unproved> callers);
    // Returns false if the caller must refuse the hello. busy: more callers wait than are accepted
    // at a time.
    bool TakeHello(const std::string& network, int64_t now_ns, bool busy);
    // The caller proved the key, so its hello does not count.
    void ReturnHello(const std::string& network);

  private:
    size_t most_silent_, most_speaking_;
    std::minstd_rand dice_{std::random_device{}()};
    std::map<std::string, int> hellos_;  // answered in this period, by network
    int64_t period_ns_ = 0;              // its begin
};

}  // namespace weft::cluster

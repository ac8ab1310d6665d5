// Rank 0's admission listener: ranks dial it, say who they are, and prove the key.
//
//     any rank -> rank 0     magic, its rank, the size, its host's name     (80 bytes, unproved)
//     then the handshake of handshake.h, in which rank 0 is always the caller
//
// The listener drops a caller that does not prove the key within two seconds, and keeps at most 64
// such callers plus one per rank, so strangers can delay a rank only briefly (pending_limit.h). A
// dropped rank dials again. The listener checks a rank's claims after the proof: its assignment
// must name the rank that its launcher gave it.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cluster/rank_registry.h"

namespace weft::cluster {

// The first bytes that a dialing rank sends, in memory layout. (All machines that Weft supports are
// little-endian.)
struct DialHello {
    uint32_t magic = 0x57464a31;
    int32_t rank = 0;  // a launcher's rank; a worker: the rank that it asks for, 0: any
    int32_t size = 0;  // number of a launcher's ranks; 0: a worker
    uint32_t reserved = 0;
    std::array<char, 64> host{};
    std::string HostName() const;
};
static_assert(offsetof(DialHello, host) == 16 && sizeof(DialHello) == 80);

class AdmissionListener {
  public:
    // Decides on a caller. nullopt: admit. A text: hang up and log it. An empty text: hang up
    // silently. Called when the hello arrives, and again after the proof of the key; the text then
    // also goes to the caller.
    using Judge = std::function<std::optional<std::string>(const DialHello&, bool proved)>;

    // listener: non-blocking, outlives this. ranks: number of ranks that may dial at once;
    // strangers are limited separately.
    AdmissionListener(int listener, int ranks, Bytes key, int64_t timeout_ms, Judge judge);
    // Waits up to nap_ms for callers; returns those that proved the key. Errors: kIo.
    Result<std::vector<Arrival>> Turn(int64_t nap_ms);
    // The caller that was last rejected, and why; "": none.
    const std::string& last_refusal() const { return last_refusal_; }

  private:
    // A connection that has not proved the key.
    struct Caller {
        Fd fd;
        std::string from;
        Deadline deadline;
        std::array<std::byte, sizeof(DialHello)> hello_bytes{};
        size_t have = 0;  // received bytes of the hello
        DialHello hello{};
        std::optional<ClientHandshake> handshake{};
        Bytes in{};
    };
    void Accept();
    void CheckAccept(int error) const;
    void DropACaller();
    // False: the caller is done, admitted or not.
    bool Hear(Caller& caller);
    bool HearHello(Caller& caller);
    bool Step(Caller& caller, const Frame& frame);
    bool Drop(const Caller& caller, const std::string& why);
    bool IsNews(const std::string& from, const std::string& why);
    bool LetsIn(const Caller& caller, bool proved);
    static void TellWhy(const Caller& caller, const std::string& why);

    int listener_;
    size_t most_callers_;
    const Bytes key_;
    int64_t timeout_ms_;
    Judge judge_;
    std::minstd_rand dice_{std::random_device{}()};
    std::vector<Caller> callers_;
    std::vector<Arrival> arrived_;
    std::string last_refusal_;
    std::map<std::string, int64_t> told_;  // rejected callers with the reason, and the time of
                                           // their log line
};

}  // namespace weft::cluster

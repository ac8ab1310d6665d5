// Rank 0's admission listener: ranks that dial it, say who they are, and prove the key.
//
//     any rank -> rank 0     magic, its rank, the size, its host's name     (80 bytes, unproved)
//     then the handshake of handshake.h, in which rank 0 is the caller as ever
//
// Whoever does not prove the key within two seconds is dropped, and at most 64 such callers (and
// one for each rank) are kept at once, so strangers can delay nobody for long (pending_limit.h); a
// rank that was dropped among them dials again. What a rank says of itself before the proof is
// checked after it: its assignment must name the rank that its launcher gave it.
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

// The first bytes of a rank that dials, as they stand in memory: little-endian, as all machines
// that Weft runs on.
struct DialHello {
    uint32_t magic = 0x57464a31;
    int32_t rank = 0;  // of a launcher's; of a worker the one that it asks for, 0: any
    int32_t size = 0;  // as a launcher says; 0: a worker
    uint32_t reserved = 0;
    std::array<char, 64> host{};
    std::string HostName() const;
};
static_assert(offsetof(DialHello, host) == 16 && sizeof(DialHello) == 80);

class AdmissionListener {
  public:
    // What becomes of who says this: nothing (let in), hung up on with these words in the log, or
    // (empty words) without any. Asked when it comes, and again once it has proved the key; then it
    // hears them, too.
    using Judge = std::function<std::optional<std::string>(const DialHello&, bool proved)>;

    // listener: non-blocking, outlives this. ranks: how many may come at once, beside strangers.
    AdmissionListener(int listener, int ranks, Bytes key, int64_t timeout_ms, Judge judge);
    // Waits up to nap_ms for callers; returns those that have proved the key. Errors: kIo.
    Result<std::vector<Arrival>> Turn(int64_t nap_ms);
    // Whom it last turned away, and why; "": nobody.
    const std::string& last_refusal() const { return last_refusal_; }

  private:
    // A connection that has not proved the key.
    struct Caller {
        Fd fd;
        std::string from;
        Deadline deadline;
        std::array<std::byte, sizeof(DialHello)> hello_bytes{};
        size_t have = 0;  // of them
        DialHello hello{};
        std::optional<ClientHandshake> handshake{};
        Bytes in{};
    };
    void Accept();
    void CheckAccept(int error) const;
    void DropACaller();
    // False: done with, whatever the outcome.
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
    std::map<std::string, int64_t> told_;  // who was turned away for what, and when that was said
};

}  // namespace weft::cluster

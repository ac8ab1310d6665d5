// Rank 0's admission listener: other ranks dial it, send their identity, and prove that they have
// the shared key.
//
//     any rank -> rank 0     magic, its rank, the size, its host's name     (80 bytes)
//     then the handshake of handshake.h, in which rank 0 is always the caller; these 80 bytes are
//     its prologue, so the proof of the key covers them
//
// A caller is a connection that was accepted. The listener drops a caller that does not prove the
// key within two seconds, and limits the number of such callers, so callers without the key can
// delay a rank only briefly (pending_limit.h). A dropped rank dials again. After the proof, the
// listener checks the caller's hello (Judge).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/join/rank_registry.h"
#include "cluster/worker/pending_limit.h"

namespace weft::cluster {

// The first bytes that a dialing rank sends. The bytes are those of this struct in memory. (All
// machines that Weft supports are little-endian.)
struct DialHello {
    uint32_t magic = 0x57464a31;
    int32_t rank = 0;  // from a launcher: its rank; from a worker: the rank that it requests, 0:
                       // any
    int32_t size = 0;  // from a launcher: number of ranks; from a worker: 0
    uint32_t reserved = 0;
    std::array<char, 64> host{};
    std::string HostName() const;
};
static_assert(offsetof(DialHello, host) == 16 && sizeof(DialHello) == 80);

class AdmissionListener {
  public:
    // Decides whether to admit a caller. nullopt: admit it. A text: close the connection and log
    // the text. An empty text: close the connection and log nothing. Called when the hello arrives,
    // and again after the proof of the key (proved); then the text is also sent to the caller.
    using Judge = std::function<std::optional<std::string>(const DialHello&, bool proved)>;

    // listener: a non-blocking socket, which must outlive this object. ranks: number of ranks that
    // may dial at the same time, in addition to other callers.
    AdmissionListener(int listener, int ranks, Bytes key, int64_t timeout_ms, Judge judge);
    // Waits at most nap_ms for callers. Returns those that have proved the key. Errors: kIo.
    Result<std::vector<Arrival>> Turn(int64_t nap_ms);
    // The last caller that was rejected, and why; "": none.
    const std::string& last_refusal() const { return last_refusal_; }

  private:
    // A connection that has not proved the key.
    struct Caller {
        Fd fd;
        std::string from, network;
        Deadline deadline;
        std::array<std::byte, sizeof(DialHello)> hello_bytes{};
        size_t have = 0;  // received bytes of the hello
        DialHello hello{};
        std::optional<ClientHandshake> handshake{};
        Bytes in{};
    };
    void Accept();
    void DropExcess();
    // Returns false once the caller is admitted or dropped.
    bool ReadCaller(Caller& caller);
    bool ReadHello(Caller& caller);
    bool Step(Caller& caller, const Frame& frame);
    bool Drop(const Caller& caller, const std::string& why);
    bool IsNews(const std::string& from, const std::string& why);
    bool LetsIn(const Caller& caller, bool proved);
    static void SendReason(const Caller& caller, const std::string& why);

    int listener_;
    PendingLimit limit_;
    bool busy_ = false;  // callers still waited after the last Accept
    const Bytes key_;
    int64_t timeout_ms_;
    Judge judge_;
    std::vector<Caller> callers_;
    std::vector<Arrival> arrived_;
    std::string last_refusal_;
    std::map<std::string, int64_t>
        logged_reasons_;  // by rejected caller and reason: time of the log line
};

}  // namespace weft::cluster

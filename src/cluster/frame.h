// Frames of the control plane: how they look on the wire, and a parser that trusts nothing.
//
//     u32 length of what follows | u8 type | payload | 16-byte tag
//
// After the handshake the payload is sealed (handshake.h); before it there is no tag.
//
// All integers are little-endian; a string or blob is a u32 length and its bytes. A frame before
// authentication is at most kMostBeforeAuth bytes, later at most kMostAfterAuth. Decoding checks
// every length against what is left, refuses what is left over, and allocates nothing larger than
// the frame. Pure functions: no socket, no clock, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cluster/wait_graph.h"

namespace weft::cluster {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

inline constexpr uint32_t kProtocol = 9;
inline constexpr size_t kMostBeforeAuth = 4096;
inline constexpr size_t kMostAfterAuth = size_t{1} << 20;
inline constexpr size_t kMostRanks = 256;
inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kMostWaits = 16;  // of a RankWaits, of each kind
inline constexpr size_t kMostWhy = 4096;  // of a worker that could not be a rank
inline constexpr size_t kMostVerdictText = 16384;  // of each text of a VerdictMessage
inline constexpr int kAllLoaded = 1000;   // thousandths
inline constexpr int64_t kMostRecoverMs = 86'400'000;

enum class FrameType : uint8_t {
    kHello = 1,      // rank 0 -> worker: who calls
    kChallenge = 2,  // worker -> rank 0: prove the key
    kProof = 3,      // rank 0 -> worker
    kWelcome = 4,    // worker -> rank 0: its own proof
    kRefuse = 5,     // worker -> rank 0: why not
    kAssign = 6,     // rank 0 -> worker: your rank and your job
    kHeartbeat = 7,  // worker -> rank 0: progress
    kRelay = 8,      // rank 0 -> worker: what is known of each rank; also its heartbeat
    kValue = 9,      // worker -> rank 0: this rank's part of a collective call
    kResult = 10,    // rank 0 -> worker: what became of it
    kFailure = 11,   // worker -> rank 0: this rank cannot go on
    kVerdict = 12,   // rank 0 -> worker: the job has failed, and why
    kEnd = 13,       // rank 0 -> worker: the job is over
    kEndAck = 14,    // worker -> rank 0: goodbye
    kReady = 15,     // worker -> rank 0: this rank has left a failed epoch, and awaits the next
    kExamine = 16,   // rank 0 -> worker that has no rank yet: could you be this one?
    kExamined = 17,  // worker -> rank 0: the answer
};

struct Frame {
    FrameType type;
    View payload;  // into the bytes that were parsed
    View tag;      // empty before authentication
};

// The frame at the front of `bytes`, and through `consumed` its size on the wire; nullopt where
// more bytes are needed. Errors: kCorrupt (impossible length, unknown type).
Result<std::optional<Frame>> ParseFrame(View bytes, bool authenticated, size_t* consumed);
// Appends a frame to `out`. The payload must fit (WEFT_CHECK).
void AppendFrame(Bytes& out, FrameType type, View payload, View tag = {});

// ---- Payloads -----------------------------------------------------------------------------------

using Nonce = std::array<std::byte, 32>;

// The layouts of the hello and the challenge are those of every protocol, so that builds of other
// protocols read the number and refuse with both.
struct HelloMessage {
    uint32_t protocol = kProtocol;
    int64_t timeout_ms = 0;
    Nonce nonce{};
    std::string version;
};
struct ChallengeMessage {
    uint32_t protocol = kProtocol;
    Nonce nonce{};
};
struct ProofMessage {  // kProof and kWelcome
    Sha256Digest mac{};
    std::string commit{}, protocol_hash{};  // of the sender (build.h); the MAC is of them, too
};
enum class Refusal : uint8_t { kWrongKey = 1, kVersion = 2, kBusy = 3 };
struct RefuseMessage {
    Refusal reason = Refusal::kWrongKey;
    // Only to a caller who has proved the key: the worker's version; of kBusy, what the job is.
    std::string version{};
    std::string commit{}, protocol_hash{};  // of the worker, with kVersion
};
struct AssignMessage {
    int32_t rank = 0;
    int64_t epoch = 1;
    uint64_t window_bytes = 0;
    std::string transport;
    std::string rdma_device;
    std::string data_net;
    std::string data_ports;  // "7001-7010"; "": any
    std::string seen_as;  // the address by which rank 0 has this worker; "": a process of its host
    int32_t gid_index = -1;
    bool checksum = false;           // of every message of the collectives
    std::vector<std::string> hosts;  // names by rank; its length is the size
    std::string job;
    int64_t recover_ms = 0;  // how long a survivor waits for the next epoch; 0: a loss ends the job
};
struct HeartbeatMessage {
    int64_t progress = 0;
    RankWaits rank_waits{};  // of more than kMostWaits waits of a kind, the first
    int64_t stalled_ms = 0;  // not 0: a wait ran out, and for so long nobody has moved
    int32_t loaded = -1;     // of this rank's weights, in thousandths; -1: it has not begun
};
struct RelayMessage {
    struct Rank {
        int64_t idle_ms = 0;    // since its progress moved
        int64_t silent_ms = 0;  // since its last heartbeat
    };
    std::vector<Rank> ranks;
};
struct ValueMessage {
    int64_t number = 0;  // of the collective call, from 1
    std::string name;
    std::string value;
    int64_t epoch = 1;
};
struct ResultMessage {
    int64_t number = 0;
    std::string value;
    int64_t epoch = 1;
};
struct ReadyMessage {
    int64_t epoch = 1;  // that is over
    std::vector<int32_t> unreached{};  // ranks to which it found no way for data in that epoch
};
// A worker may be asked again, for another rank: the answer that counts has the last number.
struct ExamineMessage {
    int64_t number = 1;
    int32_t rank = 1, size = 2;
    std::string job{}, terms{};  // as in JoinRequest (join_check.h)
};
struct ExaminedMessage {
    int64_t number = 1;
    bool fit = false;
    ErrorCode code = ErrorCode::kUnsupported;  // why it is not, in words for both hosts
    std::string why{};
};
// Why the job fails. `text` is whole but for what the rank that prints it was doing, which goes
// between `text` and `reason`: "rank 2 (host b, tcp) was lost" + " during load" + ": silent for
// 5012 ms ...". An empty reason: `text` says it all.
// What is longer than kMostVerdictText is cut, by who sends and by who reads: words of one rank are
// told to all, with more before them.
// recover: only this epoch is over, and the survivors go on to the next.
struct VerdictMessage {
    ErrorCode code = ErrorCode::kPeerLost;
    int32_t lost_rank = -1;  // -1: none was lost
    std::string text;
    std::string reason;
    int64_t epoch = 1;
    bool recover = false;
};

Bytes Encode(const HelloMessage& message);
Bytes Encode(const ChallengeMessage& message);
Bytes Encode(const ProofMessage& message);
Bytes Encode(const RefuseMessage& message);
Bytes Encode(const AssignMessage& message);
Bytes Encode(const HeartbeatMessage& message);
Bytes Encode(const RelayMessage& message);
Bytes Encode(const ValueMessage& message);
Bytes Encode(const ResultMessage& message);
Bytes Encode(const VerdictMessage& message);
Bytes Encode(const ReadyMessage& message);
Bytes Encode(const ExamineMessage& message);
Bytes Encode(const ExaminedMessage& message);

// Errors: kCorrupt, naming the message and what is wrong with it.
Result<HelloMessage> DecodeHello(View payload);
Result<ChallengeMessage> DecodeChallenge(View payload);
Result<ProofMessage> DecodeProof(View payload);
Result<RefuseMessage> DecodeRefuse(View payload);
Result<AssignMessage> DecodeAssign(View payload);
Result<HeartbeatMessage> DecodeHeartbeat(View payload);
Result<RelayMessage> DecodeRelay(View payload);
Result<ValueMessage> DecodeValue(View payload);
Result<ResultMessage> DecodeResult(View payload);
Result<VerdictMessage> DecodeVerdict(View payload);
Result<ReadyMessage> DecodeReady(View payload);
Result<ExamineMessage> DecodeExamine(View payload);
Result<ExaminedMessage> DecodeExamined(View payload);

// A list of strings in one string, and back: how AllGather's values travel.
std::string PackStrings(const std::vector<std::string>& strings);
Result<std::vector<std::string>> UnpackStrings(std::string_view packed);

}  // namespace weft::cluster

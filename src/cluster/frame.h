// Frames of the control connections: wire format, and a parser of untrusted bytes.
//
//     u32 length of what follows | u8 type | payload | 16-byte tag
//
// After the handshake the payload is sealed (handshake.h); before it there is no tag.
//
// All integers are little-endian; a string or blob is a u32 length and its bytes. A frame is at
// most kMostBeforeAuth bytes before authentication, and kMostAfterAuth later. After authentication,
// a message of up to kMostMessage bytes may take several frames of its type, of which all but the
// last have the bit kMoreFollows in their type (channel.h). Decoders check every length against the
// remaining bytes, reject surplus bytes, and allocate no more than the message has or, in lists, a
// small multiple of it. Pure functions: no socket, no clock, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aes_gcm.h"
#include "base/hash.h"
#include "base/result.h"
#include "cluster/join/ephemeral_key.h"
#include "cluster/links.h"
#include "cluster/watch/wait_graph.h"

namespace weft::cluster {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

inline constexpr uint32_t kProtocol = 12;
inline constexpr size_t kMostBeforeAuth = 4096;
inline constexpr size_t kMostAfterAuth = size_t{1} << 20;
// Most bytes of the values of all ranks in one collective call, and of a message.
inline constexpr size_t kMostGathered = size_t{64} << 20;
inline constexpr size_t kMostMessage = kMostGathered + (size_t{1} << 20);
inline constexpr uint8_t kMoreFollows = 0x80;
inline constexpr size_t kMostRanks = 4096;
inline constexpr size_t kMostRelayed = 256;  // ranks in one RelayMessage
inline constexpr size_t kTagBytes = AesGcm::kTagBytes;
inline constexpr size_t kMostWaits = 16;  // most waits of each kind in a RankWaits
inline constexpr size_t kMostWhy = 4096;  // most bytes of the reason why a worker could not be a
                                          // rank
inline constexpr size_t kMostVerdictText = 16384;  // most bytes of each text of a VerdictMessage
inline constexpr size_t kMostJobs = 16;            // most jobs that a worker runs at a time
inline constexpr size_t kMostNeighbors = 512;      // most hosts that a worker names
inline constexpr size_t kMostHostName = 64;
inline constexpr size_t kMostAbout = 160;  // most bytes of the text about a job
inline constexpr int kAllLoaded = 1000;    // thousandths
inline constexpr int64_t kMostRecoverMs = 86'400'000;

enum class FrameType : uint8_t {
    kHello = 1,      // rank 0 -> worker: identity of the caller
    kChallenge = 2,  // worker -> rank 0: prove the key
    kProof = 3,      // rank 0 -> worker
    kWelcome = 4,    // worker -> rank 0: its own proof
    kRefuse = 5,     // worker -> rank 0: reason of the refusal
    kAssign = 6,     // rank 0 -> worker: its rank and its job
    kHeartbeat = 7,  // worker -> rank 0: progress
    kRelay = 8,      // rank 0 -> worker: state of each rank; also its heartbeat
    kValue = 9,      // worker -> rank 0: this rank's value in a collective call
    kResult = 10,    // rank 0 -> worker: the result of the call
    kFailure = 11,   // worker -> rank 0: this rank failed
    kVerdict = 12,   // rank 0 -> worker: the job failed, and why
    kEnd = 13,       // rank 0 -> worker: the job is over
    kEndAck = 14,    // worker -> rank 0: goodbye
    kReady = 15,     // worker -> rank 0: this rank left a failed epoch and awaits the next
    kExamine = 16,   // rank 0 -> worker without a rank: could it be this rank?
    kExamined = 17,  // worker -> rank 0: the answer
};

struct Frame {
    FrameType type;
    View payload;       // view of the parsed bytes
    View tag;           // empty before authentication
    bool more = false;  // further frames of the same message follow
};

// Returns the first frame of `bytes`, and sets `consumed` to the frame's size in `bytes`; nullopt:
// more bytes are needed. Errors: kCorrupt (impossible length, unknown type).
Result<std::optional<Frame>> ParseFrame(View bytes, bool authenticated, size_t* consumed);
// Appends a frame to `out`. The payload must fit (WEFT_CHECK).
void AppendFrame(Bytes& out, FrameType type, View payload, View tag = {}, bool more = false);

// ---- Payloads -----------------------------------------------------------------------------------

// The hello and the challenge have the same layout in every protocol, so builds with other protocol
// numbers can read the number, and name both numbers when they refuse. (Up to protocol 9, a random
// number was in the place of the public key.)
struct HelloMessage {
    uint32_t protocol = kProtocol;
    int64_t timeout_ms = 0;
    PublicKey public_key{};
    std::string version;
};
struct ChallengeMessage {
    uint32_t protocol = kProtocol;
    PublicKey public_key{};
};
// A caller's request for a place of the worker, or in its waiting line (waiting_line.h).
struct PlaceRequest {
    uint64_t ticket = 0;   // random, one per job; 0: do not wait in line
    uint64_t number = 0;   // the ticket's number in all lines; 0: none yet
    bool take = true;      // false: only tell whether the worker could run the job now
    bool returns = false;  // rank 0 calls back a lost rank: keep the place of a killed one a moment
    std::string forward{};      // not a place: forward the connection to this neighbor (forwards.h)
    uint16_t forward_port = 0;  // there; 0: the port of its worker
};
struct ProofMessage {  // kProof and kWelcome
    Sha256Digest mac{};
    // Covered by the MAC: the sender's build (build.h), and the caller's request (kProof).
    std::string version{}, commit{}, protocol_hash{};
    PlaceRequest request{};
};
// The worker's answer to a PlaceRequest that did not start the job.
struct PlaceAnswer {
    std::vector<std::string> jobs{};  // the running jobs; at most kMostJobs texts of kMostAbout
    int32_t places = 1;               // jobs that the worker runs at a time
    int32_t place = 0;                // the ticket's place in line, from 1; 0: it is not in line
    int32_t waiting = 0;              // tickets in line
    bool free = false;                // the worker keeps a place for the ticket
    uint64_t number = 0;              // the ticket's number
    // Names of the hosts on its cables; at most kMostNeighbors, and as many as fit in a frame.
    std::vector<std::string> neighbors{};
};
enum class Refusal : uint8_t { kWrongKey = 1, kVersion = 2, kBusy = 3 };
struct RefuseMessage {
    Refusal reason = Refusal::kWrongKey;
    // Only to a caller that proved the key: the worker's version and build, with kVersion.
    std::string version{};
    std::string commit{}, protocol_hash{};
    PlaceAnswer answer{};  // with kBusy
    Sha256Digest mac{};    // zeros with kWrongKey (handshake.h)
};
struct AssignMessage {
    int32_t rank = 0;
    int64_t epoch = 1;
    uint64_t window_bytes = 0;
    std::string transport;
    std::string rdma_device;
    std::string data_net;
    std::string data_ports;  // "7001-7010"; "": any
    std::string seen_as;  // address at which rank 0 sees this worker; "": the worker is a process
                          // on rank 0's host
    int32_t gid_index = -1;
    bool checksum = false;           // verify every message of the collectives
    bool plain_links = false;        // tcp links between hosts are not encrypted
    std::vector<std::string> hosts;  // names by rank; its length is the number of ranks
    LinkNeeds links{};               // data links of this epoch
    std::string job;
    int64_t recover_ms = 0;  // how long a survivor waits for the next epoch; 0: a loss ends the job
};
struct HeartbeatMessage {
    int64_t progress = 0;
    RankWaits rank_waits{};  // at most kMostWaits waits of each kind
    int64_t stalled_ms = 0;  // not 0: a wait timed out, and no rank has made progress for this long
    int32_t loaded = -1;     // loaded part of this rank's weights, in thousandths; -1: not begun
};
// The ranks from `first` on, at most kMostRelayed: the messages of a large job take turns. All have
// the least time since the last progress of any rank, and the least time of the ranks but that one.
struct RelayMessage {
    struct Rank {
        int64_t idle_ms = 0;    // since its last progress; below 2^32, as all times here
        int64_t silent_ms = 0;  // since its last heartbeat
    };
    std::vector<Rank> ranks;
    int32_t first = 0;
    int32_t busiest = -1;  // the rank with the least time; -1: there are no ranks yet
    int64_t busiest_ms = 0, others_ms = 0;
};
struct ValueMessage {
    int64_t number = 0;  // number of the collective call, from 1
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
    int64_t epoch = 1;                 // the ended epoch
    std::vector<int32_t> unreached{};  // ranks that this rank could not reach for data in that
                                       // epoch
};
// A join request. Rank 0 may ask a worker again, for another rank; only the answer with the last
// `number` counts.
struct ExamineMessage {
    int64_t number = 1;
    int32_t rank = 1, size = 2;
    std::string job{}, terms{};  // as in JoinRequest (join_check.h)
    // Addresses of running ranks on networks that the worker's host had in common with them, each
    // as PackStrings({the rank's words, its address}). The worker must reach one of each rank.
    std::vector<std::string> reach{};
};
struct ExaminedMessage {
    int64_t number = 1;
    bool fit = false;
    ErrorCode code = ErrorCode::kUnsupported;  // if not fit: why the worker could not be a rank
    std::string why{};
};
// Why the job fails. The rank that prints it inserts its phase between `text` and `reason`: "rank 2
// (host b, tcp) was lost" + " during load" + ": silent for 5012 ms ...". An empty reason: `text` is
// complete. Sender and receiver cut texts at kMostVerdictText, because rank 0 adds words to a
// rank's text before it sends the text to all ranks. recover: only this epoch ends, and the
// survivors continue with the next epoch.
struct VerdictMessage {
    ErrorCode code = ErrorCode::kPeerLost;
    int32_t lost_rank = -1;  // -1: none
    std::string text;
    std::string reason;
    int64_t epoch = 1;
    bool recover = false;
};

// The payload of a frame with a message of this file.
template <typename Message>
Bytes Encode(const Message& message);
// Errors: kCorrupt, naming the message and the fault.
template <typename Message>
Result<Message> Decode(View payload);
// The two parts of an AssignMessage: a rank's own fields, and those that all ranks share.
Bytes EncodeOwnPart(int32_t rank, const std::string& seen_as);
Bytes EncodeSharedPart(const AssignMessage& message);

// Packs a list of strings into one string, and unpacks it.
std::string PackStrings(const std::vector<std::string>& strings);
Result<std::vector<std::string>> UnpackStrings(std::string_view packed);
// The same for strings of some of `size` ranks. Errors: kCorrupt.
using RankedStrings = std::vector<std::pair<size_t, std::string>>;
std::string PackRanked(const RankedStrings& strings);
Result<RankedStrings> UnpackRanked(std::string_view packed, size_t size);
// The same for the values of all ranks, of which equal ones are stored once. Errors: kCorrupt, also
// for more than kMostRanks values or kMostGathered bytes.
std::string PackValues(const std::vector<std::string>& values);
Result<std::vector<std::string>> UnpackValues(std::string_view packed);

}  // namespace weft::cluster

#include "cluster/frame.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>

#include "cluster/join/build.h"

namespace weft::cluster {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kMostName = 255;
constexpr size_t kMostStrings = size_t{1} << 20;  // of a list

bool KnownType(uint8_t type) {
    return type >= static_cast<uint8_t>(FrameType::kHello) &&
           type <= static_cast<uint8_t>(FrameType::kExamined);
}

class Writer {
  public:
    template <typename T>
    Writer& Int(T value) {
        static_assert(std::is_integral_v<T>);
        auto bits = static_cast<std::make_unsigned_t<T>>(value);
        for (size_t i = 0; i < sizeof(T); ++i) {
            bytes_.push_back(static_cast<std::byte>(bits & 0xff));
            if constexpr (sizeof(T) > 1) bits >>= 8;
        }
        return *this;
    }
    Writer& Raw(View bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    Writer& Text(std::string_view text) {
        Int(static_cast<uint32_t>(text.size()));
        return Raw(std::as_bytes(std::span(text)));
    }
    Bytes Take() { return std::move(bytes_); }
    std::string TakeText() const {
        return std::string(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    }

  private:
    Bytes bytes_;
};

// Reads fields in order. After the first one that does not fit it returns zeros, and Done() returns
// the error, so a decoder is a plain list of fields.
class Reader {
  public:
    Reader(const char* message, View bytes) : message_(message), left_(bytes) {}

    template <typename T>
    T Int() {
        using Bits = std::make_unsigned_t<T>;
        Bits bits = 0;
        const View raw = Raw(sizeof(T));
        for (size_t i = 0; i < raw.size(); ++i) {
            bits = static_cast<Bits>(bits | (static_cast<Bits>(raw[i]) << (8 * i)));
        }
        return static_cast<T>(bits);
    }
    View Raw(size_t count) {
        if (wrong_ == nullptr && count > left_.size()) wrong_ = "is cut short";
        if (wrong_ != nullptr) return {};
        const View raw = left_.first(count);
        left_ = left_.subspan(count);
        return raw;
    }
    template <typename T, size_t N>
    void Fill(std::array<T, N>& out) {
        static_assert(sizeof(T) == 1);
        const View raw = Raw(N);
        if (!raw.empty()) std::memcpy(out.data(), raw.data(), N);
    }
    std::string Text(size_t most = kMostMessage) {
        const size_t count = Int<uint32_t>();
        if (count > most) Fail("has a string that is too long");
        const View raw = Raw(count);
        return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
    }
    // Number of entries that follow, of at least `least_bytes` each.
    size_t Count(size_t least_bytes, size_t most) {
        const size_t count = Int<uint32_t>();
        if (count > most || count > left_.size() / least_bytes) Fail("has an impossible count");
        return wrong_ == nullptr ? count : 0;
    }
    bool Flag() {
        const auto byte = Int<uint8_t>();
        if (byte > 1) Fail("has a flag that is neither on nor off");
        return byte == 1;
    }
    void Fail(const char* wrong) {
        if (wrong_ == nullptr) wrong_ = wrong;
    }
    Status Done() {
        if (wrong_ == nullptr && !left_.empty()) wrong_ = "has bytes left over";
        if (wrong_ == nullptr) return {};
        return MakeError(ErrorCode::kCorrupt, "control message '{}' {}", message_, wrong_);
    }

  private:
    const char* message_;
    View left_;
    const char* wrong_ = nullptr;
};

// All codes of the protocol. The numbers of the codes are the protocol's, not the enum's.
constexpr std::array kCodes = {
    ErrorCode::kUsage,  ErrorCode::kNotFound,    ErrorCode::kCorrupt, ErrorCode::kUnsupported,
    ErrorCode::kIo,     ErrorCode::kOutOfMemory, ErrorCode::kTimeout, ErrorCode::kPeerLost,
    ErrorCode::kDenied, ErrorCode::kCancelled,
};

uint8_t CodeNumber(ErrorCode code) {
    for (size_t i = 0; i < kCodes.size(); ++i) {
        if (kCodes[i] == code) return static_cast<uint8_t>(i);
    }
    WEFT_CHECK(false);
    return 0;
}

template <typename T>
Result<T> Finish(Reader& reader, T message) {
    WEFT_TRY(reader.Done());
    return message;
}

}  // namespace

Result<std::optional<Frame>> ParseFrame(View bytes, bool authenticated, size_t* consumed) {
    *consumed = 0;
    const size_t tag_bytes = authenticated ? kTagBytes : 0;
    const size_t most = authenticated ? kMostAfterAuth : kMostBeforeAuth;
    if (bytes.size() < kLengthBytes) return std::optional<Frame>();
    Reader reader("frame", bytes);
    const size_t length = reader.Int<uint32_t>();
    if (length < 1 + tag_bytes || length > most - kLengthBytes) {
        return MakeError(ErrorCode::kCorrupt, "control frame of {} bytes; {} to {} are allowed",
                         length, 1 + tag_bytes, most - kLengthBytes);
    }
    // Checks the type as soon as it is here, before the rest arrives.
    if (bytes.size() == kLengthBytes) return std::optional<Frame>();
    auto type = static_cast<uint8_t>(bytes[kLengthBytes]);
    const bool more = authenticated && (type & kMoreFollows) != 0;
    if (more) type &= static_cast<uint8_t>(~kMoreFollows);
    if (!KnownType(type)) {
        return MakeError(ErrorCode::kCorrupt, "control frame of unknown type {}", type);
    }
    if (bytes.size() - kLengthBytes < length) return std::optional<Frame>();
    *consumed = kLengthBytes + length;
    const View body = bytes.subspan(kLengthBytes + 1, length - 1);
    return std::optional<Frame>(Frame{static_cast<FrameType>(type),
                                      body.first(body.size() - tag_bytes), body.last(tag_bytes),
                                      more});
}

void AppendFrame(Bytes& out, FrameType type, View payload, View tag, bool more) {
    const size_t length = 1 + payload.size() + tag.size();
    WEFT_CHECK(length <= kMostAfterAuth - kLengthBytes);
    const auto type_byte =
        static_cast<uint8_t>(static_cast<uint8_t>(type) | (more ? kMoreFollows : 0));
    const Bytes head = Writer().Int(static_cast<uint32_t>(length)).Int(type_byte).Take();
    out.insert(out.end(), head.begin(), head.end());
    out.insert(out.end(), payload.begin(), payload.end());
    out.insert(out.end(), tag.begin(), tag.end());
}

// ---- Hello, challenge, proof, refusal -----------------------------------------------------------

Bytes Encode(const HelloMessage& message) {
    return Writer()
        .Text("weft")
        .Int(message.protocol)
        .Int(message.timeout_ms)
        .Raw(message.public_key)
        .Text(message.version)
        .Take();
}

Result<HelloMessage> DecodeHello(View payload) {
    Reader reader("hello", payload);
    HelloMessage message;
    if (reader.Text(kMostName) != "weft") reader.Fail("does not begin with 'weft'");
    message.protocol = reader.Int<uint32_t>();
    message.timeout_ms = reader.Int<int64_t>();
    if (message.timeout_ms < 0 || message.timeout_ms > 86'400'000) {
        reader.Fail("has an impossible timeout");
    }
    reader.Fill(message.public_key);
    message.version = reader.Text(kMostName);
    return Finish(reader, std::move(message));
}

Bytes Encode(const ChallengeMessage& message) {
    return Writer().Int(message.protocol).Raw(message.public_key).Take();
}

Result<ChallengeMessage> DecodeChallenge(View payload) {
    Reader reader("challenge", payload);
    ChallengeMessage message;
    message.protocol = reader.Int<uint32_t>();
    reader.Fill(message.public_key);
    return Finish(reader, message);
}

namespace {

// A text of a build (build.h). It goes to terminals and logs.
std::string ReadBuildWord(Reader& reader, size_t most) {
    std::string word = reader.Text(most);
    const auto odd = [](char letter) { return letter < '!' || letter > '~'; };
    if (std::ranges::any_of(word, odd)) reader.Fail("has a malformed build name");
    return word;
}

// A host name, which goes to terminals and logs, too.
std::string ReadHostName(Reader& reader) {
    std::string name = reader.Text(kMostHostName);
    const auto odd = [](char letter) { return letter < ' ' || letter > '~' || letter == '>'; };
    if (name.empty() || std::ranges::any_of(name, odd)) reader.Fail("has a malformed host name");
    return name;
}

}  // namespace

Bytes Encode(const ProofMessage& message) {
    return Writer()
        .Raw(std::as_bytes(std::span(message.mac)))
        .Text(message.version)
        .Text(message.commit)
        .Text(message.protocol_hash)
        .Int(message.request.ticket)
        .Int(message.request.number)
        .Int(static_cast<uint8_t>(message.request.take))
        .Int(static_cast<uint8_t>(message.request.returns))
        .Text(message.request.forward)
        .Int(message.request.forward_port)
        .Take();
}

Result<ProofMessage> DecodeProof(View payload) {
    Reader reader("proof", payload);
    ProofMessage message;
    reader.Fill(message.mac);
    message.version = ReadBuildWord(reader, kMostCommit);
    message.commit = ReadBuildWord(reader, kMostCommit);
    message.protocol_hash = ReadBuildWord(reader, kMostProtocolHash);
    message.request.ticket = reader.Int<uint64_t>();
    message.request.number = reader.Int<uint64_t>();
    message.request.take = reader.Flag();
    message.request.returns = reader.Flag();
    message.request.forward = reader.Text(kMostHostName);
    message.request.forward_port = reader.Int<uint16_t>();
    return Finish(reader, std::move(message));
}

Bytes Encode(const RefuseMessage& message) {
    const PlaceAnswer& answer = message.answer;
    Writer writer;
    writer.Int(static_cast<uint8_t>(message.reason))
        .Text(message.version)
        .Text(message.commit)
        .Text(message.protocol_hash)
        .Int(static_cast<uint32_t>(answer.jobs.size()));
    for (const std::string& job : answer.jobs) writer.Text(job);
    writer.Int(static_cast<uint32_t>(answer.neighbors.size()));
    for (const std::string& name : answer.neighbors) writer.Text(name);
    return writer.Int(answer.places)
        .Int(answer.place)
        .Int(answer.waiting)
        .Int(static_cast<uint8_t>(answer.free))
        .Int(answer.number)
        .Raw(std::as_bytes(std::span(message.mac)))
        .Take();
}

Result<RefuseMessage> DecodeRefuse(View payload) {
    Reader reader("refusal", payload);
    RefuseMessage message;
    const auto reason = reader.Int<uint8_t>();
    if (reason < 1 || reason > 3) reader.Fail("has an unknown reason");
    message.reason = static_cast<Refusal>(reason);
    message.version = reader.Text(kMostName);
    message.commit = ReadBuildWord(reader, kMostCommit);
    message.protocol_hash = ReadBuildWord(reader, kMostProtocolHash);
    PlaceAnswer& answer = message.answer;
    answer.jobs.resize(reader.Count(sizeof(uint32_t), kMostJobs));
    for (std::string& job : answer.jobs) job = reader.Text(kMostAbout);
    answer.neighbors.resize(reader.Count(sizeof(uint32_t), kMostNeighbors));
    for (std::string& name : answer.neighbors) name = ReadHostName(reader);
    answer.places = reader.Int<int32_t>();
    answer.place = reader.Int<int32_t>();
    answer.waiting = reader.Int<int32_t>();
    if (answer.places < 0 || answer.place < 0 || answer.waiting < 0) {
        reader.Fail("has a negative count");
    }
    answer.free = reader.Flag();
    answer.number = reader.Int<uint64_t>();
    reader.Fill(message.mac);
    return Finish(reader, std::move(message));
}

// ---- The job ------------------------------------------------------------------------------------

Bytes EncodeOwnPart(int32_t rank, const std::string& seen_as) {
    return Writer().Int(rank).Text(seen_as).Take();
}

Bytes Encode(const AssignMessage& message) {
    Bytes bytes = EncodeOwnPart(message.rank, message.seen_as);
    const Bytes shared = EncodeSharedPart(message);
    bytes.insert(bytes.end(), shared.begin(), shared.end());
    return bytes;
}

Bytes EncodeSharedPart(const AssignMessage& message) {
    Writer writer;
    writer.Int(message.epoch).Int(message.window_bytes).Text(message.transport);
    writer.Text(message.rdma_device)
        .Text(message.data_net)
        .Text(message.data_ports)
        .Int(message.gid_index)
        .Int(uint8_t{message.checksum})
        .Int(uint8_t{message.plain_links});
    writer.Int(static_cast<uint32_t>(message.hosts.size()));
    for (const std::string& host : message.hosts) writer.Text(host);
    writer.Int(static_cast<uint32_t>(message.links.pairs.size()));
    for (const LinkNeeds::Pair& pair : message.links.pairs) {
        writer.Int(pair.a).Int(pair.b).Int(uint8_t{pair.few_bytes});
    }
    writer.Int(uint8_t{message.links.spare});
    return writer.Text(message.job).Int(message.recover_ms).Take();
}

namespace {

void ReadLinks(Reader& reader, AssignMessage& message) {
    const auto ranks = static_cast<int32_t>(message.hosts.size());
    message.links.pairs.resize(reader.Count(9, kMostRanks * kMostRanks));
    for (LinkNeeds::Pair& pair : message.links.pairs) {
        pair.a = reader.Int<int32_t>();
        pair.b = reader.Int<int32_t>();
        const uint8_t few = reader.Int<uint8_t>();
        const bool within = pair.a >= 0 && pair.b >= 0 && pair.a < ranks && pair.b < ranks;
        if (!within || pair.a == pair.b || few > 1) reader.Fail("has an impossible data link");
        pair.few_bytes = few == 1;
    }
    const uint8_t spare = reader.Int<uint8_t>();
    if (spare > 1) reader.Fail("has a setting of spare links that is neither on nor off");
    message.links.spare = spare == 1;
}

}  // namespace

Result<AssignMessage> DecodeAssign(View payload) {
    Reader reader("assignment", payload);
    AssignMessage message;
    message.rank = reader.Int<int32_t>();
    message.seen_as = reader.Text(kMostName);
    message.epoch = reader.Int<int64_t>();
    message.window_bytes = reader.Int<uint64_t>();
    message.transport = reader.Text(kMostName);
    message.rdma_device = reader.Text();
    message.data_net = reader.Text();
    message.data_ports = reader.Text(kMostName);
    message.gid_index = reader.Int<int32_t>();
    const uint8_t checksum = reader.Int<uint8_t>();
    if (checksum > 1) reader.Fail("has a checksum setting that is neither on nor off");
    message.checksum = checksum == 1;
    const uint8_t plain = reader.Int<uint8_t>();
    if (plain > 1) reader.Fail("has a setting of plain links that is neither on nor off");
    message.plain_links = plain == 1;
    message.hosts.resize(reader.Count(4, kMostRanks));
    for (std::string& host : message.hosts) host = reader.Text(kMostName);
    ReadLinks(reader, message);
    message.job = reader.Text();
    message.recover_ms = reader.Int<int64_t>();
    if (message.epoch < 1) reader.Fail("has an impossible epoch");
    if (message.recover_ms < 0 || message.recover_ms > kMostRecoverMs) {
        reader.Fail("has an impossible time for recovery");
    }
    if (message.rank < 1 || static_cast<size_t>(message.rank) >= message.hosts.size()) {
        reader.Fail("has a rank outside the cluster");
    }
    return Finish(reader, std::move(message));
}

namespace {

constexpr size_t kWaitBytes = 40;  // with an empty name

void PutWaits(Writer& writer, const std::vector<LongWait>& waits) {
    const size_t count = std::min(waits.size(), kMostWaits);
    writer.Int(static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) {
        const LongWait& wait = waits[i];
        writer.Int(int32_t{wait.on}).Int(wait.step).Int(wait.index).Int(wait.place);
        writer.Text(std::string_view(wait.op).substr(0, kMostName)).Int(wait.still_ms);
    }
}

std::vector<LongWait> ReadWaits(Reader& reader) {
    std::vector<LongWait> waits(reader.Count(kWaitBytes, kMostWaits));
    for (LongWait& wait : waits) {
        wait.on = reader.Int<int32_t>();
        wait.step = reader.Int<int64_t>();
        wait.index = reader.Int<int64_t>();
        wait.place = reader.Int<int64_t>();
        wait.op = reader.Text(kMostName);
        wait.still_ms = reader.Int<int64_t>();
        if (wait.on < 0 || wait.on >= static_cast<int>(kMostRanks) || wait.still_ms < 0) {
            reader.Fail("has a number out of its range");
        }
    }
    return waits;
}

}  // namespace

Bytes Encode(const HeartbeatMessage& message) {
    Writer writer;
    writer.Int(message.progress);
    PutWaits(writer, message.rank_waits.waits);
    PutWaits(writer, message.rank_waits.beside);
    writer.Int(uint8_t{message.rank_waits.awaits_own}).Int(message.stalled_ms);
    return writer.Int(message.loaded).Take();
}

Result<HeartbeatMessage> DecodeHeartbeat(View payload) {
    Reader reader("heartbeat", payload);
    HeartbeatMessage message;
    message.progress = reader.Int<int64_t>();
    message.rank_waits.waits = ReadWaits(reader);
    message.rank_waits.beside = ReadWaits(reader);
    const auto awaits_own = reader.Int<uint8_t>();
    message.rank_waits.awaits_own = awaits_own == 1;
    message.stalled_ms = reader.Int<int64_t>();
    message.loaded = reader.Int<int32_t>();
    const bool odd_share = message.loaded < -1 || message.loaded > kAllLoaded;
    if (awaits_own > 1 || message.stalled_ms < 0 || odd_share) {
        reader.Fail("has a number out of its range");
    }
    return Finish(reader, std::move(message));
}

Bytes Encode(const RelayMessage& message) {
    const auto time = [](int64_t ms) {
        constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
        return static_cast<uint32_t>(std::clamp<int64_t>(ms, 0, kMost));
    };
    Writer writer;
    writer.Int(message.first).Int(message.busiest);
    writer.Int(time(message.busiest_ms)).Int(time(message.others_ms));
    writer.Int(static_cast<uint32_t>(message.ranks.size()));
    for (const RelayMessage::Rank& rank : message.ranks) {
        writer.Int(time(rank.idle_ms)).Int(time(rank.silent_ms));
    }
    return writer.Take();
}

Result<RelayMessage> DecodeRelay(View payload) {
    Reader reader("relay", payload);
    RelayMessage message;
    message.first = reader.Int<int32_t>();
    message.busiest = reader.Int<int32_t>();
    message.busiest_ms = reader.Int<uint32_t>();
    message.others_ms = reader.Int<uint32_t>();
    message.ranks.resize(reader.Count(8, kMostRelayed));
    for (RelayMessage::Rank& rank : message.ranks) {
        rank.idle_ms = reader.Int<uint32_t>();
        rank.silent_ms = reader.Int<uint32_t>();
    }
    constexpr auto kMost = static_cast<int32_t>(kMostRanks);
    if (message.first < 0 || message.first > kMost || message.busiest < -1 ||
        message.busiest >= kMost) {
        reader.Fail("has a rank outside the cluster");
    }
    return Finish(reader, std::move(message));
}

Bytes Encode(const ValueMessage& message) {
    return Writer()
        .Int(message.number)
        .Text(message.name)
        .Text(message.value)
        .Int(message.epoch)
        .Take();
}

Result<ValueMessage> DecodeValue(View payload) {
    Reader reader("value", payload);
    ValueMessage message;
    message.number = reader.Int<int64_t>();
    message.name = reader.Text(kMostName);
    message.value = reader.Text();
    message.epoch = reader.Int<int64_t>();
    return Finish(reader, std::move(message));
}

Bytes Encode(const ResultMessage& message) {
    return Writer().Int(message.number).Text(message.value).Int(message.epoch).Take();
}

Result<ResultMessage> DecodeResult(View payload) {
    Reader reader("result", payload);
    ResultMessage message;
    message.number = reader.Int<int64_t>();
    message.value = reader.Text();
    message.epoch = reader.Int<int64_t>();
    return Finish(reader, std::move(message));
}

Bytes Encode(const VerdictMessage& message) {
    return Writer()
        .Int(CodeNumber(message.code))
        .Int(message.lost_rank)
        .Text(std::string_view(message.text).substr(0, kMostVerdictText))
        .Text(std::string_view(message.reason).substr(0, kMostVerdictText))
        .Int(message.epoch)
        .Int(uint8_t{message.recover})
        .Take();
}

Result<VerdictMessage> DecodeVerdict(View payload) {
    Reader reader("verdict", payload);
    VerdictMessage message;
    const auto code = reader.Int<uint8_t>();
    if (code >= kCodes.size()) reader.Fail("has an unknown error code");
    message.code = code < kCodes.size() ? kCodes[code] : ErrorCode::kCorrupt;
    message.lost_rank = reader.Int<int32_t>();
    if (message.lost_rank < -1 || message.lost_rank >= static_cast<int32_t>(kMostRanks)) {
        reader.Fail("names an impossible rank");
    }
    message.text = reader.Text().substr(0, kMostVerdictText);
    message.reason = reader.Text().substr(0, kMostVerdictText);
    message.epoch = reader.Int<int64_t>();
    const auto recover = reader.Int<uint8_t>();
    if (recover > 1) reader.Fail("has an impossible flag");
    message.recover = recover == 1;
    return Finish(reader, std::move(message));
}

Bytes Encode(const ReadyMessage& message) {
    Writer writer;
    writer.Int(message.epoch).Int(static_cast<uint32_t>(message.unreached.size()));
    for (const int32_t rank : message.unreached) writer.Int(rank);
    return writer.Take();
}

Result<ReadyMessage> DecodeReady(View payload) {
    Reader reader("ready", payload);
    ReadyMessage message;
    message.epoch = reader.Int<int64_t>();
    message.unreached.resize(reader.Count(sizeof(int32_t), kMostRanks));
    for (int32_t& rank : message.unreached) rank = reader.Int<int32_t>();
    return Finish(reader, std::move(message));
}

Bytes Encode(const ExamineMessage& message) {
    Writer writer;
    writer.Int(message.number).Int(message.rank).Int(message.size);
    return writer.Text(message.job).Text(message.terms).Text(PackStrings(message.reach)).Take();
}

Result<ExamineMessage> DecodeExamine(View payload) {
    Reader reader("examine", payload);
    ExamineMessage message;
    message.number = reader.Int<int64_t>();
    message.rank = reader.Int<int32_t>();
    message.size = reader.Int<int32_t>();
    if (message.number < 1) reader.Fail("has an impossible number");
    if (message.rank < 1 || message.rank >= message.size ||
        message.size > static_cast<int32_t>(kMostRanks)) {
        reader.Fail("has a rank outside the cluster");
    }
    message.job = reader.Text();
    message.terms = reader.Text();
    auto reach = UnpackStrings(reader.Text());
    if (!reach.ok()) reader.Fail("has malformed addresses");
    if (reach.ok()) message.reach = *std::move(reach);
    return Finish(reader, std::move(message));
}

Bytes Encode(const ExaminedMessage& message) {
    Writer writer;
    writer.Int(message.number).Int(uint8_t{message.fit}).Int(CodeNumber(message.code));
    return writer.Text(message.why).Take();
}

Result<ExaminedMessage> DecodeExamined(View payload) {
    Reader reader("examined", payload);
    ExaminedMessage message;
    message.number = reader.Int<int64_t>();
    const auto fit = reader.Int<uint8_t>();
    if (fit > 1) reader.Fail("has an impossible flag");
    message.fit = fit == 1;
    const auto code = reader.Int<uint8_t>();
    if (code >= kCodes.size()) reader.Fail("has an unknown error code");
    message.code = code < kCodes.size() ? kCodes[code] : ErrorCode::kCorrupt;
    message.why = reader.Text(kMostWhy);
    return Finish(reader, std::move(message));
}

std::string PackStrings(const std::vector<std::string>& strings) {
    Writer writer;
    writer.Int(static_cast<uint32_t>(strings.size()));
    for (const std::string& text : strings) writer.Text(text);
    return writer.TakeText();
}

Result<std::vector<std::string>> UnpackStrings(std::string_view packed) {
    Reader reader("list", std::as_bytes(std::span(packed)));
    std::vector<std::string> strings(reader.Count(4, kMostStrings));
    for (std::string& text : strings) text = reader.Text();
    return Finish(reader, std::move(strings));
}

std::string PackRanked(const RankedStrings& strings) {
    Writer writer;
    writer.Int(static_cast<uint32_t>(strings.size()));
    for (const auto& [rank, text] : strings) writer.Int(static_cast<uint32_t>(rank)).Text(text);
    return writer.TakeText();
}

Result<RankedStrings> UnpackRanked(std::string_view packed, size_t size) {
    Reader reader("list", std::as_bytes(std::span(packed)));
    RankedStrings strings(reader.Count(8, size));
    for (auto& [rank, text] : strings) {
        rank = reader.Int<uint32_t>();
        text = reader.Text();
        if (rank >= size) {
            reader.Fail("has a rank outside the cluster");
            rank = 0;
        }
    }
    return Finish(reader, std::move(strings));
}

// A value that is new follows its place among the distinct values.
std::string PackValues(const std::vector<std::string>& values) {
    Writer writer;
    std::map<std::string_view, uint32_t> places;
    writer.Int(static_cast<uint32_t>(values.size()));
    for (const std::string& value : values) {
        const auto [at, is_new] = places.emplace(value, static_cast<uint32_t>(places.size()));
        writer.Int(at->second);
        if (is_new) writer.Text(value);
    }
    return writer.TakeText();
}

Result<std::vector<std::string>> UnpackValues(std::string_view packed) {
    Reader reader("values", std::as_bytes(std::span(packed)));
    std::vector<std::string> values(reader.Count(4, kMostRanks));
    std::vector<size_t> distinct;
    size_t left = kMostGathered;
    for (size_t i = 0; i < values.size(); ++i) {
        const size_t place = reader.Int<uint32_t>();
        if (place == distinct.size()) {
            values[i] = reader.Text();
            distinct.push_back(i);
        } else if (place < distinct.size() && values[distinct[place]].size() <= left) {
            values[i] = values[distinct[place]];
        } else {
            reader.Fail("has an impossible value");
        }
        if (values[i].size() > left) reader.Fail("has too many bytes");
        left -= std::min(left, values[i].size());
    }
    return Finish(reader, std::move(values));
}

}  // namespace weft::cluster

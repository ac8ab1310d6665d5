#include "cluster/frame.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <type_traits>

#include "base/byte_codec.h"
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

using Writer = ByteFieldWriter<>;
using Reader = ByteFieldReader<>;

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
Result<T> Finish(Reader& reader, const char* name, T message) {
    if (!reader.done()) reader.Fail("has bytes left over");
    if (reader.ok()) return message;
    return MakeError(ErrorCode::kCorrupt, "control message '{}' {}", name, reader.wrong());
}

}  // namespace

Result<std::optional<Frame>> ParseFrame(View bytes, bool authenticated, size_t* consumed) {
    *consumed = 0;
    const size_t tag_bytes = authenticated ? kTagBytes : 0;
    const size_t most = authenticated ? kMostAfterAuth : kMostBeforeAuth;
    if (bytes.size() < kLengthBytes) return std::optional<Frame>();
    const size_t length = ByteReader(bytes).Take<uint32_t>();
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
    Writer head;
    head(static_cast<uint32_t>(length), type_byte);
    for (const View part : {head.bytes(), payload, tag}) {
        out.insert(out.end(), part.begin(), part.end());
    }
}

// ---- Fields of the messages ---------------------------------------------------------------------

namespace {

template <typename T, typename Message>
concept Is = std::is_same_v<std::remove_const_t<T>, Message>;

// A text of a build (build.h). It goes to terminals and logs.
void BuildWord(auto& fields, auto& word, size_t most) {
    fields.Text(word, most);
    const auto odd = [](char letter) { return letter < '!' || letter > '~'; };
    fields.Check(std::ranges::none_of(word, odd), "has a malformed build name");
}

// A host name, which goes to terminals and logs, too.
void HostName(auto& fields, auto& name) {
    fields.Text(name, kMostHostName);
    const auto odd = [](char letter) { return letter < ' ' || letter > '~' || letter == '>'; };
    fields.Check(!name.empty() && std::ranges::none_of(name, odd), "has a malformed host name");
}

template <typename Fields>
void Code(Fields& fields, auto& code) {
    uint8_t number = Fields::kReads ? 0 : CodeNumber(code);
    fields(number);
    fields.Check(number < kCodes.size(), "has an unknown error code");
    if constexpr (Fields::kReads) code = number < kCodes.size() ? kCodes[number] : kCodes[0];
}

template <typename Fields>
void Time(Fields& fields, auto& ms) {
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    auto sent = static_cast<uint32_t>(std::clamp<int64_t>(ms, 0, kMost));
    fields(sent);
    if constexpr (Fields::kReads) ms = sent;
}

void List(auto& fields, Is<HelloMessage> auto& m) {
    std::string magic = "weft";
    fields.Text(magic, kMostName);
    fields.Check(magic == "weft", "does not begin with 'weft'");
    fields(m.protocol, m.timeout_ms);
    fields.Check(m.timeout_ms >= 0 && m.timeout_ms <= 86'400'000, "has an impossible timeout");
    fields(m.public_key);
    fields.Text(m.version, kMostName);
}

void List(auto& fields, Is<ChallengeMessage> auto& m) {
    fields(m.protocol, m.public_key);
}

void List(auto& fields, Is<ProofMessage> auto& m) {
    fields(m.mac);
    BuildWord(fields, m.version, kMostCommit);
    BuildWord(fields, m.commit, kMostCommit);
    BuildWord(fields, m.protocol_hash, kMostProtocolHash);
    fields(m.request.ticket, m.request.number, m.request.take, m.request.returns);
    fields.Text(m.request.forward, kMostHostName);
    fields(m.request.forward_port);
}

void List(auto& fields, Is<RefuseMessage> auto& m) {
    fields(m.reason);
    fields.Check(m.reason >= Refusal::kWrongKey && m.reason <= Refusal::kBusy,
                 "has an unknown reason");
    fields.Text(m.version, kMostName);
    BuildWord(fields, m.commit, kMostCommit);
    BuildWord(fields, m.protocol_hash, kMostProtocolHash);
    auto& answer = m.answer;
    fields.List(answer.jobs, kMostJobs, [](auto& each, auto& job) { each.Text(job, kMostAbout); });
    fields.List(answer.neighbors, kMostNeighbors,
                [](auto& each, auto& name) { HostName(each, name); });
    fields(answer.places, answer.place, answer.waiting);
    fields.Check(answer.places >= 0 && answer.place >= 0 && answer.waiting >= 0,
                 "has a negative count");
    fields(answer.free, answer.number, m.mac);
}

void ListSharedPart(auto& fields, auto& m) {
    fields(m.epoch, m.window_bytes);
    fields.Text(m.transport, kMostName);
    fields.Text(m.rdma_device, kMostMessage);
    fields.Text(m.data_net, kMostMessage);
    fields.Text(m.data_ports, kMostName);
    fields(m.gid_index, m.checksum, m.plain_links);
    fields.List(m.hosts, kMostRanks, [](auto& each, auto& host) { each.Text(host, kMostName); });
    const auto ranks = static_cast<int32_t>(m.hosts.size());
    fields.List(m.links.pairs, kMostRanks * kMostRanks, [&](auto& each, auto& pair) {
        each(pair.a, pair.b, pair.few_bytes);
        const bool within = pair.a >= 0 && pair.b >= 0 && pair.a < ranks && pair.b < ranks;
        each.Check(within && pair.a != pair.b, "has an impossible data link");
    });
    fields(m.links.spare);
    fields.Text(m.job, kMostMessage);
    fields(m.recover_ms);
    fields.Check(m.epoch >= 1, "has an impossible epoch");
    fields.Check(m.recover_ms >= 0 && m.recover_ms <= kMostRecoverMs,
                 "has an impossible time for recovery");
}

void List(auto& fields, Is<AssignMessage> auto& m) {
    fields(m.rank);
    fields.Text(m.seen_as, kMostName);
    ListSharedPart(fields, m);
    fields.Check(m.rank >= 1 && static_cast<size_t>(m.rank) < m.hosts.size(),
                 "has a rank outside the cluster");
}

void ListWait(auto& fields, auto& wait) {
    fields(wait.on, wait.step, wait.index, wait.place);
    fields.Cut(wait.op, kMostName);
    fields(wait.still_ms);
    fields.Check(wait.on >= 0 && wait.on < static_cast<int>(kMostRanks) && wait.still_ms >= 0,
                 "has a number out of its range");
}

void List(auto& fields, Is<HeartbeatMessage> auto& m) {
    const auto list_wait = [](auto& each, auto& wait) { ListWait(each, wait); };
    fields(m.progress);
    fields.CutList(m.rank_waits.waits, kMostWaits, list_wait);
    fields.CutList(m.rank_waits.beside, kMostWaits, list_wait);
    fields(m.rank_waits.awaits_own, m.stalled_ms, m.loaded);
    fields.Check(m.stalled_ms >= 0 && m.loaded >= -1 && m.loaded <= kAllLoaded,
                 "has a number out of its range");
}

void List(auto& fields, Is<RelayMessage> auto& m) {
    fields(m.first, m.busiest);
    Time(fields, m.busiest_ms);
    Time(fields, m.others_ms);
    fields.List(m.ranks, kMostRelayed, [](auto& each, auto& rank) {
        Time(each, rank.idle_ms);
        Time(each, rank.silent_ms);
    });
    constexpr auto kMost = static_cast<int32_t>(kMostRanks);
    fields.Check(m.first >= 0 && m.first <= kMost && m.busiest >= -1 && m.busiest < kMost,
                 "has a rank outside the cluster");
}

void List(auto& fields, Is<ValueMessage> auto& m) {
    fields(m.number);
    fields.Text(m.name, kMostName);
    fields.Text(m.value, kMostMessage);
    fields(m.epoch);
}

void List(auto& fields, Is<ResultMessage> auto& m) {
    fields(m.number);
    fields.Text(m.value, kMostMessage);
    fields(m.epoch);
}

void List(auto& fields, Is<VerdictMessage> auto& m) {
    Code(fields, m.code);
    fields(m.lost_rank);
    fields.Check(m.lost_rank >= -1 && m.lost_rank < static_cast<int32_t>(kMostRanks),
                 "names an impossible rank");
    fields.Cut(m.text, kMostVerdictText, kMostMessage);
    fields.Cut(m.reason, kMostVerdictText, kMostMessage);
    fields(m.epoch, m.recover);
}

void List(auto& fields, Is<ReadyMessage> auto& m) {
    fields(m.epoch);
    fields.List(m.unreached, kMostRanks);
}

template <typename Fields>
void List(Fields& fields, Is<ExamineMessage> auto& m) {
    fields(m.number, m.rank, m.size);
    fields.Check(m.number >= 1, "has an impossible number");
    fields.Check(m.rank >= 1 && m.rank < m.size && m.size <= static_cast<int32_t>(kMostRanks),
                 "has a rank outside the cluster");
    fields.Text(m.job, kMostMessage);
    fields.Text(m.terms, kMostMessage);
    std::string reach = PackStrings(m.reach);
    fields.Text(reach, kMostMessage);
    if constexpr (Fields::kReads) {
        auto addresses = UnpackStrings(reach);
        fields.Check(addresses.ok(), "has malformed addresses");
        if (addresses.ok()) m.reach = *std::move(addresses);
    }
}

void List(auto& fields, Is<std::vector<std::string>> auto& strings) {
    fields.List(strings, kMostStrings,
                [](auto& each, auto& text) { each.Text(text, kMostMessage); });
}

void List(auto& fields, Is<ExaminedMessage> auto& m) {
    fields(m.number, m.fit);
    Code(fields, m.code);
    fields.Text(m.why, kMostWhy);
}

template <typename Message>
Writer Write(const Message& message) {
    Writer writer;
    List(writer, message);
    return writer;
}

template <typename Message>
Result<Message> Read(const char* name, View bytes) {
    Reader reader(bytes);
    Message message;
    List(reader, message);
    return Finish(reader, name, std::move(message));
}

}  // namespace

template <typename Message>
constexpr const char* kMessageName = nullptr;

template <typename Message>
Bytes Encode(const Message& message) {
    return Write(message).Take();
}

template <typename Message>
Result<Message> Decode(View payload) {
    return Read<Message>(kMessageName<Message>, payload);
}

#define WEFT_CONTROL_MESSAGE(Message, name)             \
    template <>                                         \
    constexpr const char* kMessageName<Message> = name; \
    template Bytes Encode(const Message& message);      \
    template Result<Message> Decode(View payload)

WEFT_CONTROL_MESSAGE(HelloMessage, "hello");
WEFT_CONTROL_MESSAGE(ChallengeMessage, "challenge");
WEFT_CONTROL_MESSAGE(ProofMessage, "proof");
WEFT_CONTROL_MESSAGE(RefuseMessage, "refusal");
WEFT_CONTROL_MESSAGE(AssignMessage, "assignment");
WEFT_CONTROL_MESSAGE(HeartbeatMessage, "heartbeat");
WEFT_CONTROL_MESSAGE(RelayMessage, "relay");
WEFT_CONTROL_MESSAGE(ValueMessage, "value");
WEFT_CONTROL_MESSAGE(ResultMessage, "result");
WEFT_CONTROL_MESSAGE(VerdictMessage, "verdict");
WEFT_CONTROL_MESSAGE(ReadyMessage, "ready");
WEFT_CONTROL_MESSAGE(ExamineMessage, "examine");
WEFT_CONTROL_MESSAGE(ExaminedMessage, "examined");
#undef WEFT_CONTROL_MESSAGE

Bytes EncodeOwnPart(int32_t rank, const std::string& seen_as) {
    Writer writer;
    writer(rank);
    writer.Text(seen_as);
    return writer.Take();
}

Bytes EncodeSharedPart(const AssignMessage& message) {
    Writer writer;
    ListSharedPart(writer, message);
    return writer.Take();
}

std::string PackStrings(const std::vector<std::string>& strings) {
    return Write(strings).TakeText();
}

Result<std::vector<std::string>> UnpackStrings(std::string_view packed) {
    return Read<std::vector<std::string>>("list", std::as_bytes(std::span(packed)));
}

std::string PackRanked(const RankedStrings& strings) {
    Writer writer;
    writer.List(strings, strings.size(), [](auto& each, auto& ranked) {
        each(static_cast<uint32_t>(ranked.first));
        each.Text(ranked.second);
    });
    return writer.TakeText();
}

Result<RankedStrings> UnpackRanked(std::string_view packed, size_t size) {
    Reader reader(packed);
    RankedStrings strings(reader.Count(8, size));
    for (auto& [rank, text] : strings) {
        rank = reader.Take<uint32_t>();
        reader.Text(text, kMostMessage);
        reader.Check(rank < size, "has a rank outside the cluster");
    }
    return Finish(reader, "list", std::move(strings));
}

// A value that is new follows its place among the distinct values.
std::string PackValues(const std::vector<std::string>& values) {
    Writer writer;
    std::map<std::string_view, uint32_t> places;
    writer(static_cast<uint32_t>(values.size()));
    for (const std::string& value : values) {
        const auto [at, is_new] = places.emplace(value, static_cast<uint32_t>(places.size()));
        writer(at->second);
        if (is_new) writer.Text(value);
    }
    return writer.TakeText();
}

Result<std::vector<std::string>> UnpackValues(std::string_view packed) {
    Reader reader(packed);
    std::vector<std::string> values(reader.Count(4, kMostRanks));
    std::vector<size_t> distinct;
    size_t left = kMostGathered;
    for (size_t i = 0; i < values.size(); ++i) {
        const size_t place = reader.Take<uint32_t>();
        if (place == distinct.size()) {
            reader.Text(values[i], kMostMessage);
            distinct.push_back(i);
        } else if (place < distinct.size() && values[distinct[place]].size() <= left) {
            values[i] = values[distinct[place]];
        } else {
            reader.Fail("has an impossible value");
        }
        if (values[i].size() > left) reader.Fail("has too many bytes");
        left -= std::min(left, values[i].size());
    }
    return Finish(reader, "values", std::move(values));
}

}  // namespace weft::cluster

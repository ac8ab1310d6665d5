// Frames and payloads decode to what was encoded. All other bytes are refused, and no allocation
// exceeds the frame's size.
#include "cluster/frame.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

namespace weft::cluster {
namespace {

Bytes FrameOf(FrameType type, View payload) {
    Bytes out;
    AppendFrame(out, type, payload);
    return out;
}

AssignMessage SomeAssignment() {
    AssignMessage message;
    message.rank = 2;
    message.epoch = 7;
    message.window_bytes = 4096;
    message.transport = "tcp";
    message.rdma_device = "mlx5_0:1,rxe0";
    message.gid_index = 3;
    message.checksum = true;
    message.hosts = {"a", "b", "c"};
    message.links = {{{0, 1, false}, {2, 0, true}}, true};
    message.job = R"({"model": "x.gguf"})";
    return message;
}

TEST(Frame, ComesBackWhole) {
    const Bytes payload = Encode(HeartbeatMessage{42});
    Bytes stream = FrameOf(FrameType::kHeartbeat, payload);
    AppendFrame(stream, FrameType::kEnd, {});
    size_t consumed = 0;
    auto frame = ParseFrame(stream, false, &consumed);
    ASSERT_TRUE(frame.ok());
    ASSERT_TRUE(frame->has_value());
    EXPECT_EQ((*frame)->type, FrameType::kHeartbeat);
    EXPECT_EQ(DecodeHeartbeat((*frame)->payload)->progress, 42);
    auto next = ParseFrame(View(stream).subspan(consumed), false, &consumed);
    ASSERT_TRUE(next.ok() && next->has_value());
    EXPECT_EQ((*next)->type, FrameType::kEnd);
    EXPECT_TRUE((*next)->payload.empty());
}

TEST(Frame, WaitsForTheRest) {
    const Bytes whole = FrameOf(FrameType::kHeartbeat, Encode(HeartbeatMessage{1}));
    for (size_t size = 0; size < whole.size(); ++size) {
        size_t consumed = 99;
        auto frame = ParseFrame(View(whole).first(size), false, &consumed);
        ASSERT_TRUE(frame.ok()) << size;
        EXPECT_FALSE(frame->has_value()) << size;
        EXPECT_EQ(consumed, 0u);
    }
}

bool Decodes(FrameType type, View payload) {
    switch (type) {
        case FrameType::kHello: return DecodeHello(payload).ok();
        case FrameType::kChallenge: return DecodeChallenge(payload).ok();
        case FrameType::kProof:
        case FrameType::kWelcome: return DecodeProof(payload).ok();
        case FrameType::kRefuse: return DecodeRefuse(payload).ok();
        case FrameType::kAssign: return DecodeAssign(payload).ok();
        case FrameType::kHeartbeat: return DecodeHeartbeat(payload).ok();
        case FrameType::kRelay: return DecodeRelay(payload).ok();
        case FrameType::kValue: return DecodeValue(payload).ok();
        case FrameType::kResult: return DecodeResult(payload).ok();
        case FrameType::kFailure:
        case FrameType::kVerdict: return DecodeVerdict(payload).ok();
        case FrameType::kReady: return DecodeReady(payload).ok();
        case FrameType::kExamine: return DecodeExamine(payload).ok();
        case FrameType::kExamined: return DecodeExamined(payload).ok();
        case FrameType::kEnd:
        case FrameType::kEndAck: return true;
    }
    return false;
}

// A seed of an older protocol would keep the fuzzer from the data after its fields.
TEST(Frame, TheSeedsOfTheFuzzTargetAreOfThisProtocol) {
    std::set<FrameType> seen;
    const std::filesystem::path folder = support::TestData("/../../fuzz/corpus/control");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        ASSERT_FALSE(text.empty()) << entry.path();
        View left = std::as_bytes(std::span(text)).subspan(1);
        while (!left.empty()) {
            size_t consumed = 0;
            const auto frame = ParseFrame(left, text[0] == 1, &consumed);
            ASSERT_TRUE(frame.ok() && frame->has_value()) << entry.path();
            EXPECT_TRUE(Decodes((*frame)->type, (*frame)->payload)) << entry.path();
            seen.insert((*frame)->type);
            left = left.subspan(consumed);
        }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(FrameType::kExamined));
}

TEST(Frame, RefusesImpossibleLengthsAndTypesAtOnce) {
    const auto refused = [](std::vector<int> bytes, bool authenticated) {
        Bytes raw;
        for (int byte : bytes) raw.push_back(static_cast<std::byte>(byte));
        size_t consumed = 0;
        return !ParseFrame(raw, authenticated, &consumed).ok();
    };
    EXPECT_TRUE(refused({0, 0, 0, 0}, false));          // no type
    EXPECT_TRUE(refused({255, 255, 255, 255}, false));  // 4 GiB
    EXPECT_TRUE(refused({255, 255, 255, 255}, true));
    EXPECT_TRUE(refused({0, 16, 0, 0}, false));     // 4096 + 4: too long before the proof
    EXPECT_FALSE(refused({252, 15, 0, 0}, false));  // 4092 + 4
    EXPECT_TRUE(refused({16, 0, 0, 0}, true));      // no space for a type and a tag
    EXPECT_TRUE(refused({9, 0, 0, 0, 0}, false));   // type 0
    EXPECT_TRUE(refused({9, 0, 0, 0, 18}, false));  // a type beyond the last
    EXPECT_TRUE(refused({'G', 'E', 'T', ' ', '/'}, false));
    EXPECT_TRUE(refused({'G', 'E', 'T', ' '}, true));
}

// Every message round-trips; one that is cut anywhere, or has an extra byte, is refused.
template <typename Message, typename Decode>
void CheckMessage(const Message& message, const Decode& decode) {
    const Bytes bytes = Encode(message);
    auto back = decode(View(bytes));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(Encode(*back), bytes);
    for (size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(decode(View(bytes).first(size)).ok()) << size;
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(View(longer)).ok());
}

TEST(Message, RoundTripAndRejectsOtherBytes) {
    HelloMessage hello;
    hello.version = "0.1.0";
    hello.timeout_ms = 5000;
    hello.public_key.fill(std::byte{3});
    CheckMessage(hello, DecodeHello);
    CheckMessage(ChallengeMessage{1, hello.public_key}, DecodeChallenge);
    CheckMessage(ProofMessage{{1, 2, 3}, "0.1.0", "", "", {7, 8, false, true}}, DecodeProof);
    CheckMessage(RefuseMessage{Refusal::kVersion, "0.2.0"}, DecodeRefuse);
    const PlaceAnswer answer{{"a job of x", "a job of y"}, 2, 3, 4, true, 5};
    CheckMessage(RefuseMessage{.reason = Refusal::kBusy, .answer = answer}, DecodeRefuse);
    CheckMessage(SomeAssignment(), DecodeAssign);
    CheckMessage(HeartbeatMessage{-1}, DecodeHeartbeat);
    CheckMessage(RelayMessage{{{1, 2}, {3, 4}, {5, 6}}, 256, 257, 3, 9}, DecodeRelay);
    CheckMessage(ValueMessage{3, "model", std::string("a\0b", 3)}, DecodeValue);
    CheckMessage(ResultMessage{3, "result"}, DecodeResult);
    CheckMessage(VerdictMessage{ErrorCode::kOutOfMemory, 2, "text", "reason"}, DecodeVerdict);
    CheckMessage(ReadyMessage{3, {1, 200}}, DecodeReady);
    CheckMessage(ExamineMessage{4, 2, 3, "job", "terms"}, DecodeExamine);
    CheckMessage(ExaminedMessage{4, false, ErrorCode::kOutOfMemory, "why"}, DecodeExamined);
}

TEST(Message, RoundTrip) {
    auto back = DecodeAssign(Encode(SomeAssignment()));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->rank, 2);
    EXPECT_EQ(back->epoch, 7);
    EXPECT_EQ(back->window_bytes, 4096u);
    EXPECT_EQ(back->transport, "tcp");
    EXPECT_TRUE(back->checksum);
    EXPECT_EQ(back->hosts, (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(back->links, SomeAssignment().links);
    EXPECT_EQ(back->job, R"({"model": "x.gguf"})");
    auto verdict = DecodeVerdict(Encode(VerdictMessage{ErrorCode::kDenied, -1, "t", "r"}));
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->code, ErrorCode::kDenied);
    EXPECT_EQ(verdict->lost_rank, -1);
}

TEST(Message, RefusesValuesThatCannotBe) {
    AssignMessage assignment = SomeAssignment();
    assignment.rank = 3;  // of 3 ranks
    EXPECT_FALSE(DecodeAssign(Encode(assignment)).ok());
    assignment.rank = 0;
    EXPECT_FALSE(DecodeAssign(Encode(assignment)).ok());
    assignment = SomeAssignment();
    assignment.hosts.assign(kMostRanks + 1, "h");
    EXPECT_FALSE(DecodeAssign(Encode(assignment)).ok());
    for (const LinkNeeds::Pair& pair : {LinkNeeds::Pair{0, 3}, {-1, 0}, {1, 1}}) {
        assignment = SomeAssignment();
        assignment.links.pairs.push_back(pair);
        EXPECT_FALSE(DecodeAssign(Encode(assignment)).ok()) << pair.a;
    }
    for (const char* name : {"", "b>c", "b\n"}) {
        RefuseMessage refusal;
        refusal.answer.neighbors = {"a", name};
        EXPECT_FALSE(DecodeRefuse(Encode(refusal)).ok()) << name;
    }
    HelloMessage hello;
    hello.timeout_ms = -1;
    EXPECT_FALSE(DecodeHello(Encode(hello)).ok());
    EXPECT_FALSE(DecodeVerdict(Encode(VerdictMessage{ErrorCode::kIo, -2, "", ""})).ok());
    EXPECT_FALSE(DecodeVerdict(Encode(VerdictMessage{ErrorCode::kIo, kMostRanks, "", ""})).ok());
    for (const auto& [rank, size] :
         {std::pair{0, 2}, {2, 2}, {-1, 2}, {1, kMostRanks + 1}, {1, 0}}) {
        EXPECT_FALSE(DecodeExamine(Encode(ExamineMessage{1, rank, size, "", ""})).ok()) << rank;
    }
    EXPECT_FALSE(DecodeExamine(Encode(ExamineMessage{0, 1, 2, "", ""})).ok());
    const ExaminedMessage wordy{1, false, ErrorCode::kIo, std::string(kMostWhy + 1, 'a')};
    EXPECT_FALSE(DecodeExamined(Encode(wordy)).ok());
    HeartbeatMessage beat;
    for (const int32_t loaded : {-2, kAllLoaded + 1, INT32_MIN, INT32_MAX}) {
        beat.loaded = loaded;
        EXPECT_FALSE(DecodeHeartbeat(Encode(beat)).ok()) << loaded;
    }
    for (const int32_t loaded : {-1, 0, kAllLoaded}) {
        beat.loaded = loaded;
        const auto back = DecodeHeartbeat(Encode(beat));
        ASSERT_TRUE(back.ok()) << loaded;
        EXPECT_EQ(back->loaded, loaded);
    }
    // A count of 2^32 - 1 ranks in 4 bytes of payload is refused without allocation.
    Bytes huge(20);
    std::fill(huge.begin() + 16, huge.end(), std::byte{255});
    EXPECT_FALSE(DecodeRelay(huge).ok());
    const RelayMessage long_relay{std::vector<RelayMessage::Rank>(kMostRelayed + 1)};
    EXPECT_FALSE(DecodeRelay(Encode(long_relay)).ok());
    EXPECT_FALSE(UnpackStrings(std::string(4, '\xff')).ok());
}

template <typename Message>
void CheckSame(const Result<Message>& back, const Bytes& bytes) {
    if (back.ok()) {
        EXPECT_EQ(Encode(*back), bytes);
    }
}

TEST(Message, SurvivesAnyBytes) {
    std::mt19937 random(5);
    for (int round = 0; round < 20000; ++round) {
        Bytes bytes = round % 2 == 0 ? Encode(SomeAssignment()) : Bytes(random() % 64);
        for (int flips = 0; flips < 3 && !bytes.empty(); ++flips) {
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        }
        CheckSame(DecodeAssign(bytes), bytes);
        CheckSame(DecodeRelay(bytes), bytes);
        CheckSame(DecodeVerdict(bytes), bytes);
        CheckSame(DecodeHello(bytes), bytes);
        size_t consumed = 0;
        auto frame = ParseFrame(bytes, round % 3 == 0, &consumed);
        EXPECT_LE(consumed, bytes.size());
        if (frame.ok() && frame->has_value()) {
            EXPECT_LE((*frame)->payload.size(), bytes.size());
        }
    }
}

TEST(Message, StringsOfAListComeBack) {
    const std::vector<std::string> list = {"", "a", std::string(1000, 'x'), std::string("\0", 1)};
    auto back = UnpackStrings(PackStrings(list));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, list);
}

}  // namespace
}  // namespace weft::cluster

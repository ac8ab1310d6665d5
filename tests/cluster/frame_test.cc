// Frames and payloads decode to what was encoded. All other bytes are refused, and no allocation
// exceeds the frame's size.
#include "cluster/frame.h"
#include "support/paths.h"

#include <fmt/format.h>
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
    EXPECT_EQ(Decode<HeartbeatMessage>((*frame)->payload)->progress, 42);
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
        case FrameType::kHello: return Decode<HelloMessage>(payload).ok();
        case FrameType::kChallenge: return Decode<ChallengeMessage>(payload).ok();
        case FrameType::kProof:
        case FrameType::kWelcome: return Decode<ProofMessage>(payload).ok();
        case FrameType::kRefuse: return Decode<RefuseMessage>(payload).ok();
        case FrameType::kAssign: return Decode<AssignMessage>(payload).ok();
        case FrameType::kHeartbeat: return Decode<HeartbeatMessage>(payload).ok();
        case FrameType::kRelay: return Decode<RelayMessage>(payload).ok();
        case FrameType::kValue: return Decode<ValueMessage>(payload).ok();
        case FrameType::kResult: return Decode<ResultMessage>(payload).ok();
        case FrameType::kFailure:
        case FrameType::kVerdict: return Decode<VerdictMessage>(payload).ok();
        case FrameType::kReady: return Decode<ReadyMessage>(payload).ok();
        case FrameType::kExamine: return Decode<ExamineMessage>(payload).ok();
        case FrameType::kExamined: return Decode<ExaminedMessage>(payload).ok();
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
template <typename Message>
void CheckMessage(const Message& message) {
    const Bytes bytes = Encode(message);
    auto back = Decode<Message>(View(bytes));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(Encode(*back), bytes);
    for (size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(Decode<Message>(View(bytes).first(size)).ok()) << size;
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Decode<Message>(View(longer)).ok());
}

TEST(Message, RoundTripAndRejectsOtherBytes) {
    HelloMessage hello;
    hello.version = "0.1.0";
    hello.timeout_ms = 5000;
    hello.public_key.fill(std::byte{3});
    CheckMessage(hello);
    CheckMessage(ChallengeMessage{1, hello.public_key});
    CheckMessage(ProofMessage{{1, 2, 3}, "0.1.0", "", "", {7, 8, false, true}});
    CheckMessage(RefuseMessage{Refusal::kVersion, "0.2.0"});
    const PlaceAnswer answer{{"a job of x", "a job of y"}, 2, 3, 4, true, 5};
    CheckMessage(RefuseMessage{.reason = Refusal::kBusy, .answer = answer});
    CheckMessage(SomeAssignment());
    CheckMessage(HeartbeatMessage{-1});
    CheckMessage(RelayMessage{{{1, 2}, {3, 4}, {5, 6}}, 256, 257, 3, 9});
    CheckMessage(ValueMessage{3, "model", std::string("a\0b", 3)});
    CheckMessage(ResultMessage{3, "result"});
    CheckMessage(VerdictMessage{ErrorCode::kOutOfMemory, 2, "text", "reason"});
    CheckMessage(ReadyMessage{3, {1, 200}});
    CheckMessage(ExamineMessage{4, 2, 3, "job", "terms"});
    CheckMessage(ExaminedMessage{4, false, ErrorCode::kOutOfMemory, "why"});
}

// The bytes of each message as the first program of this protocol sent them.
TEST(Message, HasTheBytesOfItsProtocol) {
    const auto hex = [](const auto& message) {
        std::string text;
        for (const std::byte byte : Encode(message)) text += fmt::format("{:02x}", byte);
        return text;
    };
    PublicKey key{};
    for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
    Sha256Digest mac{};
    mac.fill(0xab);
    EXPECT_EQ(
        hex(HelloMessage{12, 5000, key, "0.1.0"}),
        "04000000776566740c0000008813000000000000000102030405060708090a0b0c0d0e0f1011121314151617"
        "18191a1b1c1d1e1f05000000302e312e30");
    EXPECT_EQ(hex(ChallengeMessage{0x01020304, key}),
              "04030201000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    const PlaceRequest request{7, 8, false, true, "far", 7001};
    EXPECT_EQ(
        hex(ProofMessage{mac, "0.1.0", "c0ffee", "hash", request}),
        "abababababababababababababababababababababababababababababababab05000000302e312e30060000"
        "00633066666565040000006861736807000000000000000800000000000000000103000000666172591b");
    const PlaceAnswer answer{{"a job"}, 2, 3, 4, true, 5, {"b", "c"}};
    EXPECT_EQ(
        hex(RefuseMessage{Refusal::kBusy, "0.2.0", "c1", "h2", answer, mac}),
        "0305000000302e322e30020000006331020000006832010000000500000061206a6f62020000000100000062"
        "0100000063020000000300000004000000010500000000000000abababababababababababababababababab"
        "abababababababababababababab");
    AssignMessage assignment = SomeAssignment();
    assignment.data_net = "10.0.0.0/8";
    assignment.data_ports = "7001-7010";
    assignment.seen_as = "10.0.0.2";
    assignment.plain_links = true;
    assignment.recover_ms = 300;
    EXPECT_EQ(
        hex(assignment),
        "020000000800000031302e302e302e3207000000000000000010000000000000030000007463700d0000006d"
        "6c78355f303a312c727865300a00000031302e302e302e302f3809000000373030312d373031300300000001"
        "0103000000010000006101000000620100000063020000000000000001000000000200000000000000010113"
        "0000007b226d6f64656c223a2022782e67677566227d2c01000000000000");
    Bytes parts = EncodeOwnPart(2, "10.0.0.2");
    const Bytes shared = EncodeSharedPart(assignment);
    parts.insert(parts.end(), shared.begin(), shared.end());
    EXPECT_EQ(parts, Encode(assignment));
    LongWait wait;
    wait.on = 3;
    wait.step = 9;
    wait.index = -1;
    wait.place = 12;
    wait.op = "all_reduce";
    wait.still_ms = 2013;
    EXPECT_EQ(
        hex(HeartbeatMessage{42, {{wait}, {}, true}, 77, 500}),
        "2a0000000000000001000000030000000900000000000000ffffffffffffffff0c000000000000000a000000"
        "616c6c5f726564756365dd0700000000000000000000014d00000000000000f4010000");
    EXPECT_EQ(hex(RelayMessage{{{1, -2}, {int64_t{1} << 40, 4}}, 256, 257, 3, 9}),
              "00010000010100000300000009000000020000000100000000000000ffffffff04000000");
    EXPECT_EQ(hex(ValueMessage{3, "model", std::string("a\0b", 3), 2}),
              "0300000000000000050000006d6f64656c030000006100620200000000000000");
    EXPECT_EQ(hex(ResultMessage{-3, "result", 6}),
              "fdffffffffffffff06000000726573756c740600000000000000");
    EXPECT_EQ(hex(VerdictMessage{ErrorCode::kOutOfMemory, 2, "text", "why", 4, true}),
              "0502000000040000007465787403000000776879040000000000000001");
    EXPECT_EQ(hex(ReadyMessage{3, {1, 200}}), "03000000000000000200000001000000c8000000");
    EXPECT_EQ(
        hex(ExamineMessage{4, 2, 3, "job", "terms", {"a", "bc"}}),
        "04000000000000000200000003000000030000006a6f62050000007465726d730f0000000200000001000000"
        "61020000006263");
    EXPECT_EQ(hex(ExaminedMessage{4, true, ErrorCode::kCancelled, "why"}),
              "0400000000000000010903000000776879");
}

TEST(Message, AHeartbeatHasTheFirstWaitsAndTheBeginOfTheirNames) {
    LongWait wait;
    wait.on = 3;
    wait.op = std::string(300, 'w');
    const std::vector<LongWait> waits(kMostWaits + 1, wait);
    const auto cut = Decode<HeartbeatMessage>(Encode(HeartbeatMessage{42, {waits, {}, true}}));
    ASSERT_TRUE(cut.ok());
    EXPECT_EQ(cut->rank_waits.waits.size(), kMostWaits);
    EXPECT_EQ(cut->rank_waits.waits[0].op, std::string(255, 'w'));
}

TEST(Message, RoundTrip) {
    auto back = Decode<AssignMessage>(Encode(SomeAssignment()));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->rank, 2);
    EXPECT_EQ(back->epoch, 7);
    EXPECT_EQ(back->window_bytes, 4096u);
    EXPECT_EQ(back->transport, "tcp");
    EXPECT_TRUE(back->checksum);
    EXPECT_EQ(back->hosts, (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(back->links, SomeAssignment().links);
    EXPECT_EQ(back->job, R"({"model": "x.gguf"})");
    auto verdict = Decode<VerdictMessage>(Encode(VerdictMessage{ErrorCode::kDenied, -1, "t", "r"}));
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->code, ErrorCode::kDenied);
    EXPECT_EQ(verdict->lost_rank, -1);
}

TEST(Message, RefusesValuesThatCannotBe) {
    AssignMessage assignment = SomeAssignment();
    assignment.rank = 3;  // of 3 ranks
    EXPECT_FALSE(Decode<AssignMessage>(Encode(assignment)).ok());
    assignment.rank = 0;
    EXPECT_FALSE(Decode<AssignMessage>(Encode(assignment)).ok());
    assignment = SomeAssignment();
    assignment.hosts.assign(kMostRanks + 1, "h");
    EXPECT_FALSE(Decode<AssignMessage>(Encode(assignment)).ok());
    for (const LinkNeeds::Pair& pair : {LinkNeeds::Pair{0, 3}, {-1, 0}, {1, 1}}) {
        assignment = SomeAssignment();
        assignment.links.pairs.push_back(pair);
        EXPECT_FALSE(Decode<AssignMessage>(Encode(assignment)).ok()) << pair.a;
    }
    for (const char* name : {"", "b>c", "b\n"}) {
        RefuseMessage refusal;
        refusal.answer.neighbors = {"a", name};
        EXPECT_FALSE(Decode<RefuseMessage>(Encode(refusal)).ok()) << name;
    }
    HelloMessage hello;
    hello.timeout_ms = -1;
    EXPECT_FALSE(Decode<HelloMessage>(Encode(hello)).ok());
    EXPECT_FALSE(Decode<VerdictMessage>(Encode(VerdictMessage{ErrorCode::kIo, -2, "", ""})).ok());
    EXPECT_FALSE(
        Decode<VerdictMessage>(Encode(VerdictMessage{ErrorCode::kIo, kMostRanks, "", ""})).ok());
    for (const auto& [rank, size] :
         {std::pair{0, 2}, {2, 2}, {-1, 2}, {1, kMostRanks + 1}, {1, 0}}) {
        EXPECT_FALSE(Decode<ExamineMessage>(Encode(ExamineMessage{1, rank, size, "", ""})).ok())
            << rank;
    }
    EXPECT_FALSE(Decode<ExamineMessage>(Encode(ExamineMessage{0, 1, 2, "", ""})).ok());
    const ExaminedMessage wordy{1, false, ErrorCode::kIo, std::string(kMostWhy + 1, 'a')};
    EXPECT_FALSE(Decode<ExaminedMessage>(Encode(wordy)).ok());
    HeartbeatMessage beat;
    for (const int32_t loaded : {-2, kAllLoaded + 1, INT32_MIN, INT32_MAX}) {
        beat.loaded = loaded;
        EXPECT_FALSE(Decode<HeartbeatMessage>(Encode(beat)).ok()) << loaded;
    }
    for (const int32_t loaded : {-1, 0, kAllLoaded}) {
        beat.loaded = loaded;
        const auto back = Decode<HeartbeatMessage>(Encode(beat));
        ASSERT_TRUE(back.ok()) << loaded;
        EXPECT_EQ(back->loaded, loaded);
    }
    // A count of 2^32 - 1 ranks in 4 bytes of payload is refused without allocation.
    Bytes huge(20);
    std::fill(huge.begin() + 16, huge.end(), std::byte{255});
    EXPECT_FALSE(Decode<RelayMessage>(huge).ok());
    const RelayMessage long_relay{std::vector<RelayMessage::Rank>(kMostRelayed + 1)};
    EXPECT_FALSE(Decode<RelayMessage>(Encode(long_relay)).ok());
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
        CheckSame(Decode<AssignMessage>(bytes), bytes);
        CheckSame(Decode<RelayMessage>(bytes), bytes);
        CheckSame(Decode<VerdictMessage>(bytes), bytes);
        CheckSame(Decode<HelloMessage>(bytes), bytes);
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

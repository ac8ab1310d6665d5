// The handshake between two state machines, without sockets: the right key succeeds, everything
// else is refused with its reason, and replay fails.
#include "cluster/join/handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/file.h"
#include "support/temp_dir.h"

namespace weft::cluster {
namespace {

Bytes KeyOf(const char* text) {
    const View bytes = std::as_bytes(std::span(text, std::strlen(text)));
    return Bytes(bytes.begin(), bytes.end());
}

const Bytes kKey = KeyOf("0123456789abcdef-the-key");

Frame Only(const Bytes& bytes) {
    size_t consumed = 0;
    auto frame = ParseFrame(bytes, false, &consumed);
    WEFT_CHECK(frame.ok() && frame->has_value() && consumed == bytes.size());
    return **frame;
}

struct Outcome {
    Status client;
    std::string refused, warning;
    bool server_done = false;
    Session client_session, server_session;
};

Outcome Shake(const Bytes& client_key, const Bytes& server_key, Identity client_is = {},
              Identity server_is = {}, bool busy = false) {
    ClientHandshake client("worker h2:7000", client_key, 5000, client_is);
    ServerHandshake server(server_key, server_is);
    Outcome outcome;
    Bytes to_server = client.First();
    while (!client.done()) {
        const auto step = server.On(Only(to_server), [&](const PlaceRequest&) {
            return busy ? std::optional(PlaceAnswer{.jobs = {"a job of 10.0.0.1:5"}})
                        : std::nullopt;
        });
        outcome.refused = step.refused;
        outcome.server_done = step.done;
        if (step.send.empty()) break;
        auto answer = client.On(Only(step.send));
        if (!answer.ok()) {
            outcome.client = answer.error();
            break;
        }
        to_server = std::move(*answer);
    }
    outcome.warning = client.BuildWarning();
    outcome.client_session = client.session();
    outcome.server_session = server.session();
    return outcome;
}

TEST(Handshake, TheSameKeyOpensAndFramesPassBothWays) {
    Outcome o = Shake(kKey, kKey);
    ASSERT_TRUE(o.client.ok());
    ASSERT_TRUE(o.server_done);
    EXPECT_EQ(o.server_session.timeout_ms, 5000);
    for (int i = 0; i < 3; ++i) {
        for (bool up : {true, false}) {
            Session& from = up ? o.client_session : o.server_session;
            Session& to = up ? o.server_session : o.client_session;
            Bytes wire;
            SealFrame(from, wire, FrameType::kHeartbeat, Encode(HeartbeatMessage{i}));
            size_t consumed = 0;
            auto frame = ParseFrame(wire, true, &consumed);
            ASSERT_TRUE(frame.ok() && frame->has_value());
            auto payload = OpenFrame(to, **frame);
            ASSERT_TRUE(payload.ok());
            EXPECT_EQ(Decode<HeartbeatMessage>(*payload)->progress, i);
        }
    }
}

TEST(Handshake, AnotherKeyIsRefusedWithoutAProofOfOurs) {
    const Outcome o = Shake(KeyOf("another-key-another-key"), kKey);
    ASSERT_FALSE(o.client.ok());
    EXPECT_EQ(o.client.error().code, ErrorCode::kDenied);
    EXPECT_NE(o.client.error().message.find("worker h2:7000 refused our key"), std::string::npos);
    EXPECT_EQ(o.refused, kWrongKey);
    EXPECT_FALSE(o.server_done);
}

TEST(Handshake, AWorkerThatDoesNotKnowTheKeyIsFoundOut) {
    ClientHandshake client("worker h2:7000", kKey, 5000);
    ServerHandshake honest(kKey);
    const auto challenge = honest.On(Only(client.First()));
    ASSERT_TRUE(client.On(Only(challenge.send)).ok());
    Bytes lie;
    AppendFrame(lie, FrameType::kWelcome, Encode(ProofMessage{}));
    const auto answer = client.On(Only(lie));
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ErrorCode::kDenied);
    EXPECT_NE(answer.error().message.find("did not prove"), std::string::npos);
}

TEST(Handshake, AnotherControlProtocolIsRefused) {
    const Outcome protocol = Shake(kKey, kKey, {}, Identity{kProtocol + 1});
    ASSERT_FALSE(protocol.client.ok());
    const std::string words = fmt::format("speaks control protocol {}", kProtocol + 1);
    EXPECT_NE(protocol.client.error().message.find(words), std::string::npos);
    EXPECT_FALSE(protocol.refused.empty());
}

Identity OfBuild(const std::string& commit, const std::string& hash = "0123456789ab") {
    return {kProtocol, {WEFT_VERSION, commit, hash}};
}

TEST(Handshake, AnotherCommitOfTheSameProtocolIsWarnedOf) {
    const Outcome other = Shake(kKey, kKey, OfBuild("aaaa"), OfBuild("bbbb-dirty"));
    ASSERT_TRUE(other.client.ok()) << other.client.error().message;
    EXPECT_TRUE(other.server_done);
    const std::string differ = fmt::format(
        "worker h2:7000 runs weft {0} of commit bbbb-dirty, this is weft {0} of commit "
        "aaaa: they can work together",
        WEFT_VERSION);
    EXPECT_NE(other.warning.find(differ), std::string::npos) << other.warning;
    EXPECT_NE(other.warning.find(kSameBuild), std::string::npos);
    for (const auto& [client, server] : std::initializer_list<std::pair<const char*, const char*>>{
             {"aaaa", "aaaa"}, {"aaaa", "unknown"}, {"unknown", "aaaa"}, {"unknown", "unknown"}}) {
        const Outcome same = Shake(kKey, kKey, OfBuild(client), OfBuild(server));
        EXPECT_TRUE(same.client.ok() && same.server_done);
        EXPECT_EQ(same.warning, "") << client << " " << server;
    }
}

// The hosts of a cluster are upgraded one after another.
TEST(Handshake, AnotherVersionOfTheSameProtocolIsWarnedOf) {
    for (const bool newer : {true, false}) {
        Identity other = OfBuild("bbbb");
        other.build.version = newer ? "99.0.0" : "0.0.1";
        const Outcome o = Shake(kKey, kKey, OfBuild("aaaa"), other);
        ASSERT_TRUE(o.client.ok()) << o.client.error().message;
        EXPECT_TRUE(o.server_done);
        EXPECT_NE(o.warning.find("runs weft " + other.build.version + " of commit bbbb"),
                  std::string::npos)
            << o.warning;
        // Builds with another protocol are refused, and the error names the older one.
        other.build.protocol_hash = "222222222222";
        const Outcome refused = Shake(kKey, kKey, OfBuild("aaaa"), other);
        ASSERT_FALSE(refused.client.ok());
        EXPECT_EQ(refused.client.error().code, ErrorCode::kDenied);
        const std::string older =
            newer ? "; this is the older version" : "; worker h2:7000 has the older version";
        EXPECT_NE(refused.client.error().message.find(older), std::string::npos)
            << refused.client.error().message;
        EXPECT_NE(refused.refused.find(newer ? "; it has the older" : "; this is the older"),
                  std::string::npos)
            << refused.refused;
    }
}

TEST(Handshake, AnotherProtocolHashIsRefusedWithBothBuildsNamed) {
    for (const char* commit : {"aaaa", "bbbb", "unknown"}) {
        const Outcome o =
            Shake(kKey, kKey, OfBuild("aaaa", "111111111111"), OfBuild(commit, "222222222222"));
        ASSERT_FALSE(o.client.ok());
        EXPECT_FALSE(o.server_done);
        EXPECT_EQ(o.client.error().code, ErrorCode::kDenied);
        EXPECT_EQ(o.client.error().message,
                  fmt::format("worker h2:7000 runs weft {0} (commit {1}, protocol hash "
                              "222222222222), this is weft {0} (commit aaaa, protocol hash "
                              "111111111111): their messages or ops differ, so they cannot "
                              "work together. {2}",
                              WEFT_VERSION, commit, kSameBuild));
        EXPECT_EQ(o.refused,
                  fmt::format("it runs weft {0} (commit aaaa, protocol hash 111111111111), this is "
                              "weft {0} (commit {1}, protocol hash 222222222222): their messages "
                              "or ops differ, so they cannot work together",
                              WEFT_VERSION, commit));
    }
    // A peer without the key learns nothing about the build.
    const Outcome stranger = Shake(KeyOf("another-key-another-key"), kKey,
                                   OfBuild("aaaa", "111111111111"), OfBuild("bbbb", "2222"));
    EXPECT_EQ(stranger.refused, kWrongKey);
    EXPECT_EQ(stranger.client.error().message.find("bbbb"), std::string::npos);
}

// Messages of protocol 8: a hello of this layout, a challenge, a proof of 32 bytes.
TEST(Handshake, AnOlderPeerIsRefusedBothWays) {
    HelloMessage hello{8, 5000, {}, WEFT_VERSION};
    Bytes call;
    AppendFrame(call, FrameType::kHello, Encode(hello));
    ServerHandshake server(kKey);
    const auto answer = server.On(Only(call));
    EXPECT_EQ(answer.refused, fmt::format("it speaks control protocol 8, this is {}", kProtocol));
    EXPECT_EQ(Decode<ChallengeMessage>(Only(answer.send).payload)->protocol, kProtocol);

    ClientHandshake client("worker h2:7000", kKey, 5000);
    Bytes challenge;
    AppendFrame(challenge, FrameType::kChallenge, Encode(ChallengeMessage{8, {}}));
    const auto refused = client.On(Only(challenge));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
    EXPECT_NE(refused.error().message.find(fmt::format(
                  "worker h2:7000 speaks control protocol 8, this weft {} (", WEFT_VERSION)),
              std::string::npos)
        << refused.error().message;

    hello.protocol = kProtocol;
    call.clear();
    AppendFrame(call, FrameType::kHello, Encode(hello));
    ServerHandshake odd(kKey);
    ASSERT_EQ(odd.On(Only(call)).refused, "");
    Bytes proof;
    AppendFrame(proof, FrameType::kProof, Bytes(32));
    const auto step = odd.On(Only(proof));
    EXPECT_FALSE(step.done);
    EXPECT_EQ(step.refused, "control message 'proof' is cut short");
}

TEST(Handshake, ABuildIsPartOfTheProof) {
    ClientHandshake client("w", kKey, 5000, OfBuild("aaaa"));
    ServerHandshake server(kKey, OfBuild("aaaa"));
    const auto challenge = server.On(Only(client.First()));
    const Bytes proof = client.On(Only(challenge.send)).value();
    ProofMessage altered = Decode<ProofMessage>(Only(proof).payload).value();
    EXPECT_EQ(altered.commit, "aaaa");
    altered.protocol_hash = "999999999999";
    Bytes lie;
    AppendFrame(lie, FrameType::kProof, Encode(altered));
    EXPECT_EQ(server.On(Only(lie)).refused, kWrongKey);

    ServerHandshake honest(kKey, OfBuild("aaaa"));
    ClientHandshake victim("w", kKey, 5000, OfBuild("aaaa"));
    const auto second = honest.On(Only(victim.First()));
    const auto welcome = honest.On(Only(victim.On(Only(second.send)).value()));
    ASSERT_TRUE(welcome.done);
    ProofMessage other = Decode<ProofMessage>(Only(welcome.send).payload).value();
    other.commit = "bbbb";
    lie.clear();
    AppendFrame(lie, FrameType::kWelcome, Encode(other));
    EXPECT_FALSE(victim.On(Only(lie)).ok());
}

TEST(Handshake, WordsOfABuildAreBounded) {
    const auto fits = [](const std::string& commit, const std::string& hash) {
        const Bytes proof = Encode(ProofMessage{{}, WEFT_VERSION, commit, hash});
        const Bytes refusal = Encode(RefuseMessage{Refusal::kVersion, "1", commit, hash});
        EXPECT_EQ(Decode<ProofMessage>(proof).ok(), Decode<RefuseMessage>(refusal).ok());
        return Decode<ProofMessage>(proof).ok();
    };
    EXPECT_TRUE(fits("", ""));
    EXPECT_TRUE(fits(std::string(kMostCommit, 'c'), std::string(kMostProtocolHash, 'h')));
    EXPECT_FALSE(fits(std::string(kMostCommit + 1, 'c'), "h"));
    EXPECT_FALSE(fits("c", std::string(kMostProtocolHash + 1, 'h')));
    for (const char* odd : {"a b", "\x1b[2J", "a\n", "\xc3\xa9"}) {
        EXPECT_FALSE(fits(odd, "h")) << odd;
        EXPECT_FALSE(fits("c", odd)) << odd;
    }
}

TEST(Builds, AreDistinguishedByVersionCommitAndHash) {
    const Build own;
    EXPECT_EQ(own.commit, "unknown");  // as in all test programs
    EXPECT_EQ(own.protocol_hash.size(), 12u);
    EXPECT_EQ(own.protocol_hash.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(CanWorkTogether(own, {}));
    const Build older{WEFT_VERSION, "", ""};
    EXPECT_FALSE(CanWorkTogether(own, older));
    EXPECT_FALSE(BuildsDiffer(own, older));
    EXPECT_EQ(BuildText(older), "weft " WEFT_VERSION " (no protocol hash)");
    EXPECT_EQ(BuildRemark("b", own), "");
    EXPECT_EQ(BuildRemark("b", older, {"9.9.9", "aa", "bb"}),
              "b runs weft " WEFT_VERSION
              " (no protocol hash), this is weft 9.9.9 (commit aa, "
              "protocol hash bb): their messages or ops differ, so they cannot work together; b "
              "has the older version");
    const Build ten{"0.10.0", "aa", "bb"}, nine{"0.9.9", "aa", "cc"};
    EXPECT_NE(RefusalText("b", nine, ten).find("; b has the older"), std::string::npos);
    EXPECT_NE(RefusalText("b", ten, nine).find("; this is the older"), std::string::npos);
    for (const char* odd : {"", "x", "99999999999999999999", "1.", "0.10.0"}) {
        EXPECT_NE(RefusalText("b", {odd, "aa", "cc"}, ten).find("cannot work"), std::string::npos);
    }
}

// A rack of hosts with long names: as many as fit in a frame before authentication.
TEST(Handshake, BusyWorkerNamesTheNeighborsThatFit) {
    constexpr size_t kNameBytes = sizeof(uint32_t) + kMostHostName;
    for (const auto& [jobs, neighbors] : {std::pair{0, 512}, {16, 512}, {16, 0}, {1, 40}}) {
        PlaceAnswer answer{.jobs = {static_cast<size_t>(jobs), std::string(kMostAbout, 'j')}};
        answer.neighbors.assign(static_cast<size_t>(neighbors), std::string(kMostHostName, 'h'));
        ClientHandshake client("worker h2:7000", kKey, 5000);
        ServerHandshake server(kKey);
        const auto challenge = server.On(Only(client.First()));
        const Bytes proof = client.On(Only(challenge.send)).value();
        const auto busy = server.On(Only(proof), [&](const PlaceRequest&) { return answer; });
        size_t consumed = 0;
        const auto frame = ParseFrame(busy.send, false, &consumed);
        ASSERT_TRUE(frame.ok()) << frame.error().message;
        const auto refused = client.On(**frame);
        ASSERT_FALSE(refused.ok());
        EXPECT_TRUE(IsBusy(refused.error())) << refused.error().message;
        EXPECT_EQ(client.answer()->jobs.size(), static_cast<size_t>(jobs));
        const size_t named = client.answer()->neighbors.size();
        const bool full = busy.send.size() + kNameBytes > kMostBeforeAuth;
        EXPECT_TRUE(named == static_cast<size_t>(neighbors) || full) << named;
    }
}

TEST(Handshake, BusyWorkerAnswersOnlyCallersWithTheKey) {
    const Outcome busy = Shake(kKey, kKey, {}, {}, true);
    ASSERT_FALSE(busy.client.ok());
    EXPECT_NE(busy.client.error().message.find("another job (a job of 10.0.0.1:5): wait"),
              std::string::npos);
    EXPECT_TRUE(IsBusy(busy.client.error()));
    EXPECT_FALSE(IsBusy(MakeError(ErrorCode::kTimeout, "worker b:7000: no answer")));
    const Outcome stranger = Shake(KeyOf("another-key-another-key"), kKey, {}, {}, true);
    EXPECT_EQ(stranger.refused, kWrongKey);
}

TEST(Handshake, ARecordedHandshakeProvesNothing) {
    // Messages of a good handshake that an eavesdropper recorded ...
    ClientHandshake client("w", kKey, 5000);
    ServerHandshake server(kKey);
    const Bytes hello = client.First();
    const auto challenge = server.On(Only(hello));
    const Bytes proof = client.On(Only(challenge.send)).value();
    ASSERT_TRUE(server.On(Only(proof)).done);
    // ... do not open a second session, nor the same one again.
    ServerHandshake second(kKey);
    second.On(Only(hello));
    const auto replayed = second.On(Only(proof));
    EXPECT_FALSE(replayed.done);
    EXPECT_EQ(replayed.refused, kWrongKey);
}

TEST(Handshake, AWorkersProofIsNotACallers) {
    // An attacker dials worker A and passes A's challenge to us as its own, so that our proof or
    // A's welcome might serve in the other role.
    ClientHandshake victim("w", kKey, 5000);
    ServerHandshake worker(kKey);
    const auto challenge = worker.On(Only(victim.First()));
    const Bytes proof = victim.On(Only(challenge.send)).value();
    const Frame proof_frame = Only(proof);
    Bytes reflected;
    AppendFrame(reflected, FrameType::kWelcome, proof_frame.payload);
    EXPECT_FALSE(victim.On(Only(reflected)).ok());
}

// Session keys and a proof, from a second implementation of the protocol in handshake.h.
struct ByHand {
    Sha256Digest secret{};
    Bytes transcript{};

    ByHand(View key, View shared, View prologue, View hello, View challenge) {
        secret = HmacSha256(key, Labelled("weft control secret", shared));
        transcript = {static_cast<std::byte>(prologue.size()), {}, {}, {}};
        for (const View part : {prologue, hello, challenge}) {
            transcript.insert(transcript.end(), part.begin(), part.end());
        }
    }
    static Bytes Labelled(std::string_view label, View text) {
        const View bytes = std::as_bytes(std::span(label));
        Bytes all(bytes.begin(), bytes.end());
        all.push_back({});
        all.insert(all.end(), text.begin(), text.end());
        return all;
    }
    Sha256Digest Mac(std::string_view label) const {
        return HmacSha256(std::as_bytes(std::span(secret)), Labelled(label, transcript));
    }
    Bytes Proof() const {
        Bytes proven = transcript;
        AppendFrame(proven, FrameType::kProof, Encode(ProofMessage{}));
        const Sha256Digest mac =
            HmacSha256(std::as_bytes(std::span(secret)), Labelled("weft control client", proven));
        Bytes frame;
        AppendFrame(frame, FrameType::kProof, Encode(ProofMessage{mac}));
        return frame;
    }
};

// The caller's messages by hand, with its own X25519 key pair.
TEST(Handshake, KeysAndProofsNeedTheSharedSecretAndTheKey) {
    const Bytes prologue = KeyOf("prologue"), other = KeyOf("fedcba9876543210-the-key");
    const Identity without_hash{kProtocol, {WEFT_VERSION, "", ""}};
    EphemeralKey own;
    HelloMessage hello{kProtocol, 5000, own.public_key(), WEFT_VERSION};
    Bytes call;
    AppendFrame(call, FrameType::kHello, Encode(hello));
    for (const bool right : {true, false}) {
        ServerHandshake server(right ? kKey : other, without_hash, prologue);
        const Bytes challenge = server.On(Only(call)).send;
        EphemeralKey pair = right ? std::move(own) : EphemeralKey();
        const PublicKey theirs = Decode<ChallengeMessage>(Only(challenge).payload)->public_key;
        const Secret shared = pair.Agree(theirs).value();
        const ByHand caller(kKey, std::as_bytes(std::span(*shared)), prologue, call, challenge);
        const auto step = server.On(Only(caller.Proof()));
        EXPECT_EQ(step.done, right);
        EXPECT_EQ(step.proved, right);
        if (!right) continue;
        EXPECT_EQ(server.session().receive_key, caller.Mac("weft frames of client"));
        EXPECT_EQ(server.session().send_key, caller.Mac("weft frames of server"));
    }
}

// An attacker who recorded the messages and obtains the key file later lacks the shared secret,
// without which neither the session keys nor the recorded proof can be computed.
TEST(Handshake, ARecordedSessionStaysClosedAfterTheKeyIsKnown) {
    ClientHandshake client("w", kKey, 5000);
    ServerHandshake server(kKey);
    const Bytes hello = client.First();
    const Bytes challenge = server.On(Only(hello)).send;
    const Bytes proof = client.On(Only(challenge)).value();
    ASSERT_TRUE(client.On(Only(server.On(Only(proof)).send)).ok());
    const Session& session = client.session();
    EXPECT_EQ(session.send_key, server.session().receive_key);

    const PublicKey mine = Decode<HelloMessage>(Only(hello).payload)->public_key;
    const PublicKey theirs = Decode<ChallengeMessage>(Only(challenge).payload)->public_key;
    EphemeralKey guess;
    const Secret guessed = guess.Agree(theirs).value();
    const Sha256Digest zeros{};
    const std::vector<View> candidates = {View(), mine, theirs, std::as_bytes(std::span(zeros)),
                                          std::as_bytes(std::span(*guessed))};
    for (const View shared : candidates) {
        const ByHand thief(kKey, shared, {}, hello, challenge);
        EXPECT_NE(thief.Mac("weft frames of client"), session.send_key);
        EXPECT_NE(thief.Mac("weft frames of server"), session.receive_key);
    }
    // Keys straight from the key and the transcript, as up to protocol 9.
    Bytes transcript = hello;
    transcript.insert(transcript.end(), challenge.begin(), challenge.end());
    EXPECT_NE(HmacSha256(kKey, ByHand::Labelled("weft frames of client", transcript)),
              session.send_key);
    // The private keys differ in each handshake, and so do all keys.
    ClientHandshake again("w", kKey, 5000);
    EXPECT_NE(Decode<HelloMessage>(Only(again.First()).payload)->public_key, mine);
}

TEST(Handshake, APointOfLowOrderIsRefused) {
    const auto point = [](std::initializer_list<int> low, int middle, int high) {
        PublicKey key;
        key.fill(static_cast<std::byte>(middle));
        size_t i = 0;
        for (const int byte : low) key[i++] = static_cast<std::byte>(byte);
        key.back() = static_cast<std::byte>(high);
        return key;
    };
    for (const PublicKey& low : {point({0}, 0, 0), point({1}, 0, 0), point({0xec}, 0xff, 0x7f),
                                 point({0xed}, 0xff, 0x7f), point({0xee}, 0xff, 0x7f)}) {
        Bytes call;
        AppendFrame(call, FrameType::kHello,
                    Encode(HelloMessage{kProtocol, 5000, low, WEFT_VERSION}));
        ServerHandshake server(kKey);
        ASSERT_EQ(server.On(Only(call)).refused, "");
        Bytes proof;
        AppendFrame(proof, FrameType::kProof, Encode(ProofMessage{}));
        EXPECT_NE(server.On(Only(proof)).refused.find("low order"), std::string::npos);

        ClientHandshake client("worker h2:7000", kKey, 5000);
        Bytes challenge;
        AppendFrame(challenge, FrameType::kChallenge, Encode(ChallengeMessage{kProtocol, low}));
        const auto answer = client.On(Only(challenge));
        ASSERT_FALSE(answer.ok());
        EXPECT_EQ(answer.error().code, ErrorCode::kDenied);
        EXPECT_NE(answer.error().message.find("low order"), std::string::npos);
    }
}

// Any changed byte of any message, and of what passed before, ends the handshake at both ends.
TEST(Handshake, AChangedByteIsFound) {
    const Bytes prologue = KeyOf("what passed before");
    const auto shake = [&](int message, size_t at) {
        int number = 0;
        bool altered = false;
        const auto carry = [&](Bytes bytes) {
            if (number++ != message || at >= bytes.size()) return bytes;
            bytes[at] ^= std::byte{1};
            altered = true;
            return bytes;
        };
        const Bytes arrived = carry(prologue);
        ClientHandshake client("w", kKey, 5000, {}, arrived);
        ServerHandshake server(kKey, {}, prologue);
        const auto parsed = [](const Bytes& bytes) -> std::optional<Frame> {
            size_t consumed = 0;
            const auto frame = ParseFrame(bytes, false, &consumed);
            return frame.ok() ? *frame : std::nullopt;
        };
        Bytes up = client.First();
        bool server_done = false;
        while (!client.done()) {
            const Bytes call = carry(up);
            const auto frame = parsed(call);
            if (!frame.has_value()) break;
            const auto step = server.On(*frame);
            server_done = step.done;
            const Bytes answer = carry(step.send);
            const auto back = parsed(answer);
            if (!back.has_value()) break;
            auto next = client.On(*back);
            if (!next.ok()) break;
            up = *next;
        }
        EXPECT_EQ(client.done(), !altered) << message << " " << at;
        EXPECT_EQ(server_done, !altered || message == 4) << message << " " << at;
        return altered;
    };
    for (int message = 0; message < 5; ++message) {
        size_t at = 0;
        while (shake(message, at)) ++at;
        EXPECT_GE(at, prologue.size()) << message;
    }
}

// The error of a refusal that anyone could have sent says so, or asks to retry.
TEST(Handshake, ForgedRefusalIsDetected) {
    const auto refused = [](const auto& alter) {
        ClientHandshake client("worker h2:7000", kKey, 5000);
        ServerHandshake server(kKey);
        const auto challenge = server.On(Only(client.First()));
        const Bytes proof = client.On(Only(challenge.send)).value();
        const auto step = server.On(Only(proof), [](const PlaceRequest&) {
            return std::optional(PlaceAnswer{.jobs = {"a job of x"}, .place = 1, .waiting = 2});
        });
        EXPECT_TRUE(step.proved && !step.done);
        RefuseMessage message = Decode<RefuseMessage>(Only(step.send).payload).value();
        alter(message);
        Bytes wire;
        AppendFrame(wire, FrameType::kRefuse, Encode(message));
        return client.On(Only(wire)).error();
    };
    EXPECT_TRUE(IsBusy(refused([](RefuseMessage&) {})));
    const std::vector<std::function<void(RefuseMessage&)>> lies = {
        [](RefuseMessage& message) { message.version = "9.9.9"; },
        [](RefuseMessage& message) { message.answer.jobs = {"a job of y"}; },
        [](RefuseMessage& message) { message.answer.place = 2; },
        [](RefuseMessage& message) { message.answer.free = true; },
        [](RefuseMessage& message) { message.reason = Refusal::kVersion; },
        [](RefuseMessage& message) { message.commit = "c"; },
        [](RefuseMessage& message) { message.mac = {}; },
        [](RefuseMessage& message) {
            message = {.reason = Refusal::kBusy, .answer = {.jobs = {"a job of y"}}};
        },
        [](RefuseMessage& message) {
            message = {Refusal::kVersion, "9.9.9", "c", "h"};
        }};
    for (const auto& lie : lies) {
        const Error error = refused(lie);
        EXPECT_EQ(error.code, ErrorCode::kIo) << error.message;
        EXPECT_NE(error.message.find("a refusal came that is not from a worker with our key"),
                  std::string::npos)
            << error.message;
        EXPECT_EQ(error.message.find("9.9.9"), std::string::npos) << error.message;
    }
    const Error key = refused([](RefuseMessage& message) { message = {Refusal::kWrongKey}; });
    EXPECT_EQ(key.code, ErrorCode::kDenied);
    EXPECT_NE(key.message.find("not authenticated"), std::string::npos) << key.message;
    const Outcome protocol = Shake(kKey, kKey, {}, Identity{kProtocol + 1});
    EXPECT_NE(protocol.client.error().message.find("not authenticated"), std::string::npos);
}

TEST(Handshake, FramesOutOfOrderAreRefused) {
    ServerHandshake server(kKey);
    Bytes proof;
    AppendFrame(proof, FrameType::kProof, Encode(ProofMessage{}));
    EXPECT_FALSE(server.On(Only(proof)).refused.empty());
    ServerHandshake other(kKey);
    Bytes assign;
    AppendFrame(assign, FrameType::kEnd, {});
    EXPECT_FALSE(other.On(Only(assign)).refused.empty());
}

TEST(Seal, AlteredRepeatedAndReorderedFramesAreRefused) {
    const auto [parent, child] = MakeSessionPair(1000);
    Session from = parent;
    Bytes one, two;
    SealFrame(from, one, FrameType::kValue, Encode(ValueMessage{1, "a", "secret"}));
    SealFrame(from, two, FrameType::kValue, Encode(ValueMessage{2, "b", "secret"}));
    const auto opens = [](Session& to, const Bytes& wire) {
        size_t consumed = 0;
        auto frame = ParseFrame(wire, true, &consumed);
        return frame.ok() && frame->has_value() && OpenFrame(to, **frame).ok();
    };
    Session in_order = child;
    EXPECT_TRUE(opens(in_order, one));
    EXPECT_FALSE(opens(in_order, one));  // repeated
    Session reordered = child;
    EXPECT_FALSE(opens(reordered, two));
    for (size_t i = 4; i < one.size(); ++i) {  // any byte except the length
        Session fresh = child;
        Bytes altered = one;
        altered[i] ^= std::byte{1};
        EXPECT_FALSE(opens(fresh, altered)) << i;
    }
    Session back = parent;  // back to its sender
    EXPECT_FALSE(opens(back, one));
    const std::string wire(reinterpret_cast<const char*>(one.data()), one.size());
    EXPECT_EQ(wire.find("secret"), std::string::npos);
}

TEST(Seal, ASessionTravelsWhole) {
    auto [parent, child] = MakeSessionPair(777);
    parent.sent = 5;
    auto back = DecodeSession(EncodeSession(parent));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->send_key, child.receive_key);
    EXPECT_EQ(back->sent, 5u);
    EXPECT_EQ(back->timeout_ms, 777);
    EXPECT_FALSE(DecodeSession({}).ok());
}

TEST(KeyFile, IsReadWithoutItsLineEndAndCheckedForLength) {
    const test::TempDir folder;
    const auto write = [&](const char* name, std::string_view text) {
        EXPECT_TRUE(WriteFile(folder / name, std::as_bytes(std::span(text))).ok());
        return folder / name;
    };
    auto key = ReadKeyFile(write("good", "0123456789abcdef\r\n"));
    ASSERT_TRUE(key.ok());
    EXPECT_EQ(key->size(), 16u);
    auto brief = ReadKeyFile(write("brief", "0123456789abcde\n"));
    ASSERT_FALSE(brief.ok());
    EXPECT_NE(brief.error().message.find("16 to 4096"), std::string::npos);
    EXPECT_FALSE(ReadKeyFile(write("empty", "")).ok());
    EXPECT_FALSE(ReadKeyFile(write("long", std::string(5000, 'k'))).ok());
    EXPECT_EQ(ReadKeyFile(folder / "absent").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace weft::cluster

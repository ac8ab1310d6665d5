#include "cluster/join/handshake.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "base/aes_gcm.h"
#include "base/byte_codec.h"
#include "base/file.h"
#include "base/log.h"

namespace weft::cluster {
namespace {

constexpr size_t kLeastKey = 16;
constexpr size_t kMostKey = 4096;

constexpr std::string_view kBusyWords = " is running ";

constexpr std::string_view kSecret = "weft control secret";
constexpr std::string_view kClientProof = "weft control client";
constexpr std::string_view kServerProof = "weft control server";
constexpr std::string_view kRefusal = "weft control refusal";
constexpr std::string_view kClientFrames = "weft frames of client";
constexpr std::string_view kServerFrames = "weft frames of server";

// Ends the text of an answer that anyone on the network can send.
constexpr const char* kNotProved = "(This answer is not authenticated)";

Sha256Digest Mac(View key, std::string_view label, View transcript) {
    Bytes data(label.size() + 1 + transcript.size());  // a zero ends the label
    std::memcpy(data.data(), label.data(), label.size());
    std::memcpy(data.data() + label.size() + 1, transcript.data(), transcript.size());
    return HmacSha256(key, data);
}

Sha256Digest Mac(const Secret& secret, std::string_view label, View transcript) {
    return Mac(std::as_bytes(std::span(*secret)), label, transcript);
}

// The secret of a handshake. Errors: kDenied.
Result<Secret> SecretOf(View key, EphemeralKey& own, const PublicKey& peer) {
    WEFT_ASSIGN(const Secret shared, own.Agree(peer));
    std::array<std::byte, kSecret.size() + 1 + sizeof(Sha256Digest)> data{};
    std::memcpy(data.data(), kSecret.data(), kSecret.size());
    std::memcpy(data.data() + kSecret.size() + 1, shared->data(), shared->size());
    Secret secret = MakeSecret();
    *secret = HmacSha256(key, data);
    OPENSSL_cleanse(data.data(), data.size());
    return secret;
}

// MAC of a proof or a welcome.
Sha256Digest ProofMac(const Secret& secret, std::string_view label, Bytes transcript,
                      ProofMessage proof) {
    proof.mac = {};
    AppendFrame(transcript, FrameType::kProof, Encode(proof));
    return Mac(secret, label, transcript);
}

Sha256Digest RefusalMac(const Secret& secret, Bytes transcript, RefuseMessage message) {
    message.mac = {};
    AppendFrame(transcript, FrameType::kRefuse, Encode(message));
    return Mac(secret, kRefusal, transcript);
}

// The prologue and both whole messages with their lengths, so that different ones give different
// bytes.
Bytes Transcript(View prologue, const HelloMessage& hello, const ChallengeMessage& challenge) {
    const auto size = static_cast<uint32_t>(prologue.size());
    Bytes transcript(sizeof size);
    std::memcpy(transcript.data(), &size, sizeof size);
    transcript.insert(transcript.end(), prologue.begin(), prologue.end());
    AppendFrame(transcript, FrameType::kHello, Encode(hello));
    AppendFrame(transcript, FrameType::kChallenge, Encode(challenge));
    return transcript;
}

Error Unexpected(const std::string& name, const char* what) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} during the handshake. Does a weft worker listen on that port?", name,
                     what);
}

Error BusyError(const std::string& name, const PlaceAnswer& answer) {
    return MakeError(ErrorCode::kTimeout,
                     "{}: wait until one ends (--wait TIME), name a second worker of that host in "
                     "--hosts ('weft worker --listen' on another port), or restart the worker with "
                     "--jobs {}",
                     BusyText(name, answer), answer.places + 1);
}

// As in the frame: the tag covers it.
std::byte TypeByte(FrameType type, bool more) {
    return static_cast<std::byte>(type) | static_cast<std::byte>(more ? kMoreFollows : 0);
}

Bytes PlainFrame(FrameType type, View payload) {
    Bytes out;
    AppendFrame(out, type, payload);
    return out;
}

// Drops neighbors that do not fit into a frame before authentication.
void CutToFrame(RefuseMessage& message) {
    std::vector<std::string> neighbors = std::exchange(message.answer.neighbors, {});
    size_t bytes = PlainFrame(FrameType::kRefuse, Encode(message)).size();
    for (std::string& name : neighbors) {
        bytes += sizeof(uint32_t) + name.size();
        if (bytes > kMostBeforeAuth) return;
        message.answer.neighbors.push_back(std::move(name));
    }
}

void ListSession(auto& fields, auto& session) {
    fields(session.send_key, session.receive_key, session.sent, session.received,
           session.timeout_ms);
}

}  // namespace

Result<Bytes> ReadKeyFile(const std::string& path) {
    WEFT_ASSIGN(std::string text, ReadTextFile(path, 2 * kMostKey));
    while (!text.empty() && std::strchr(" \t\r\n", text.back()) != nullptr) text.pop_back();
    if (text.size() < kLeastKey || text.size() > kMostKey) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a key of {} bytes; {} to {} are expected. Make one with: "
                         "(umask 077; head -c 32 /dev/urandom | base64 > FILE), and copy it to "
                         "every host",
                         path, text.size(), kLeastKey, kMostKey);
    }
    struct stat info {};
    // A group may read a key owned by root (0440: secrets of containers, credentials of services).
    const auto open = [&] { return info.st_mode & (info.st_uid == 0 ? 037u : 077u); };
    if (::stat(path.c_str(), &info) == 0 && open() != 0) {
        Log(LogLevel::kWarning, "{}: other users may read this key; mend it with: chmod 600 {}",
            path, path);
    }
    const View bytes = std::as_bytes(std::span(text));
    return Bytes(bytes.begin(), bytes.end());
}

void SealFrame(Session& session, Bytes& out, FrameType type, View payload, bool more) {
    Bytes sealed(payload.size());
    std::array<std::byte, kTagBytes> tag;
    const std::byte type_byte = TypeByte(type, more);
    AesGcm(AesGcm::Direction::kSeal, session.send_key)
        .Seal(session.sent++, {&type_byte, 1}, {&payload, 1}, sealed.data(), tag);
    AppendFrame(out, type, sealed, tag, more);
}

Result<Bytes> OpenFrame(Session& session, const Frame& frame) {
    Bytes payload(frame.payload.size());
    const std::byte type_byte = TypeByte(frame.type, frame.more);
    if (AesGcm(AesGcm::Direction::kOpen, session.receive_key)
            .Open(session.received++, {&type_byte, 1}, frame.payload, payload.data(), frame.tag)) {
        return payload;
    }
    return MakeError(ErrorCode::kDenied, "a control frame was altered or came out of order");
}

Bytes EncodeSession(const Session& session) {
    ByteFieldWriter<> writer;
    ListSession(writer, session);
    return writer.Take();
}

Result<Session> DecodeSession(View bytes) {
    ByteFieldReader<> reader(bytes);
    Session session;
    ListSession(reader, session);
    if (reader.done()) return session;
    return MakeError(ErrorCode::kCorrupt,
                     "a worker's session of {} bytes is malformed: 'weft worker --handle' is "
                     "started by weft itself, never by hand",
                     bytes.size());
}

std::pair<Session, Session> MakeSessionPair(int64_t timeout_ms) {
    Session parent;
    RandomBytes(std::as_writable_bytes(std::span(parent.send_key)));
    RandomBytes(std::as_writable_bytes(std::span(parent.receive_key)));
    parent.timeout_ms = timeout_ms;
    Session child = parent;
    std::swap(child.send_key, child.receive_key);
    return {parent, child};
}

bool IsBusy(const Error& error) {
    return error.code == ErrorCode::kTimeout && error.message.find(kBusyWords) != std::string::npos;
}

std::string BusyText(const std::string& name, const PlaceAnswer& answer) {
    const size_t jobs = answer.jobs.size();
    const std::string count = jobs == 0   ? "no job, but others wait for it"
                              : jobs == 1 ? "another job"
                                          : fmt::format("{} other jobs", jobs);
    const std::string text = AnswerText(answer);
    return fmt::format("{}{}{}{}", name, kBusyWords, count, text.empty() ? "" : " (" + text + ")");
}

std::string AnswerText(const PlaceAnswer& answer) {
    std::string text;
    for (const std::string& job : answer.jobs) text += (text.empty() ? "" : "; ") + job;
    if (answer.place == 0) return text;
    return fmt::format("{}{}place {} of {} in line", text, text.empty() ? "" : "; ", answer.place,
                       answer.waiting);
}

// ---- The caller ---------------------------------------------------------------------------------

ClientHandshake::ClientHandshake(std::string name, Bytes key, int64_t timeout_ms, Identity identity,
                                 Bytes prologue)
    : name_(std::move(name)),
      key_(std::move(key)),
      identity_(std::move(identity)),
      prologue_(std::move(prologue)) {
    hello_.protocol = identity_.protocol;
    hello_.version = identity_.build.version;
    hello_.timeout_ms = timeout_ms;
    hello_.public_key = ephemeral_.public_key();
}

Bytes ClientHandshake::First() const {
    return PlainFrame(FrameType::kHello, Encode(hello_));
}

Result<Bytes> ClientHandshake::OnChallenge(const Frame& frame) {
    auto challenge = Decode<ChallengeMessage>(frame.payload);
    if (!challenge.ok()) return Unexpected(name_, "a malformed challenge came");
    if (challenge->protocol != identity_.protocol) {
        return MakeError(ErrorCode::kDenied,
                         "{} speaks control protocol {}, this {} speaks {}. {}. {}", name_,
                         challenge->protocol, BuildText(identity_.build), identity_.protocol,
                         kSameBuild, kNotProved);
    }
    auto secret = SecretOf(key_, ephemeral_, challenge->public_key);
    if (!secret.ok()) {
        return MakeError(ErrorCode::kDenied, "{}: {}: something else answers there", name_,
                         secret.error().message);
    }
    secret_ = std::move(*secret);
    transcript_ = Transcript(prologue_, hello_, *challenge);
    session_.send_key = Mac(secret_, kClientFrames, transcript_);
    session_.receive_key = Mac(secret_, kServerFrames, transcript_);
    session_.timeout_ms = hello_.timeout_ms;
    const Build& own = identity_.build;
    ProofMessage proof{{}, own.version, own.commit, own.protocol_hash, request_};
    proof.mac = ProofMac(secret_, kClientProof, transcript_, proof);
    return PlainFrame(FrameType::kProof, Encode(proof));
}

std::string ClientHandshake::BuildWarning() const {
    const std::string text = done_ ? DifferenceText(name_, worker_, identity_.build) : "";
    return text.empty() ? "" : fmt::format("{}. {}", text, kSameBuild);
}

Error ClientHandshake::Refused(RefuseMessage message) {
    const bool proved = DigestsEqual(message.mac, RefusalMac(secret_, transcript_, message));
    if (!proved && message.reason != Refusal::kWrongKey) {
        return MakeError(ErrorCode::kIo,
                         "{}: a refusal came that is not from a worker with our key, or was "
                         "altered on the way",
                         name_);
    }
    switch (message.reason) {
        case Refusal::kWrongKey:
            return MakeError(
                ErrorCode::kDenied,
                "{} refused our key: its --key-file holds another one, or a message was "
                "altered on the way. Copy the same file to every host. {}",
                name_, kNotProved);
        case Refusal::kVersion:
            return MakeError(
                ErrorCode::kDenied, "{}. {}",
                RefusalText(name_, {message.version, message.commit, message.protocol_hash},
                            identity_.build),
                kSameBuild);
        case Refusal::kBusy: answer_ = std::move(message.answer); return BusyError(name_, *answer_);
    }
    return Unexpected(name_, "an unknown refusal came");
}

Result<Bytes> ClientHandshake::On(const Frame& frame) {
    if (secret_ == nullptr) {
        if (frame.type != FrameType::kChallenge)
            return Unexpected(name_, "an unexpected frame came");
        return OnChallenge(frame);
    }
    if (frame.type == FrameType::kRefuse) {
        auto refusal = Decode<RefuseMessage>(frame.payload);
        if (!refusal.ok()) return Unexpected(name_, "a malformed refusal came");
        return Refused(*refusal);
    }
    if (frame.type != FrameType::kWelcome) return Unexpected(name_, "an unexpected frame came");
    auto proof = Decode<ProofMessage>(frame.payload);
    if (!proof.ok()) return Unexpected(name_, "a malformed proof came");
    worker_ = {proof->version, proof->commit, proof->protocol_hash};
    if (!DigestsEqual(proof->mac, ProofMac(secret_, kServerProof, transcript_, *proof))) {
        return MakeError(ErrorCode::kDenied,
                         "{} did not prove that it has our key: something else answers there, or "
                         "its key differs",
                         name_);
    }
    done_ = true;
    secret_.reset();
    return Bytes();
}

// ---- The listener -------------------------------------------------------------------------------

ServerHandshake::ServerHandshake(View key, Identity identity, Bytes prologue)
    : key_(key), identity_(std::move(identity)), prologue_(std::move(prologue)) {}

ServerHandshake::Step ServerHandshake::On(const Frame& frame, const Places& places) {
    const bool fresh = transcript_.empty();
    if (fresh && frame.type == FrameType::kHello) return OnHello(frame);
    if (ephemeral_.has_value() && frame.type == FrameType::kProof) {
        return OnProof(frame, places);
    }
    return {{}, false, "an unexpected frame"};
}

ServerHandshake::Step ServerHandshake::OnHello(const Frame& frame) {
    auto hello = Decode<HelloMessage>(frame.payload);
    if (!hello.ok()) return {{}, false, hello.error().message};
    hello_ = std::move(*hello);
    ChallengeMessage challenge;
    challenge.protocol = identity_.protocol;
    ephemeral_.emplace();
    challenge.public_key = ephemeral_->public_key();
    transcript_ = Transcript(prologue_, hello_, challenge);
    Step step{PlainFrame(FrameType::kChallenge, Encode(challenge)), false, ""};
    if (hello_.protocol != identity_.protocol) {
        step.refused = fmt::format("it speaks control protocol {}, this is {}", hello_.protocol,
                                   identity_.protocol);
    }
    return step;
}

ServerHandshake::Step ServerHandshake::OnProof(const Frame& frame, const Places& places) {
    auto proof = Decode<ProofMessage>(frame.payload);
    if (!proof.ok()) return {{}, false, proof.error().message};
    EphemeralKey ephemeral = *std::exchange(ephemeral_, std::nullopt);
    const auto secret = SecretOf(key_, ephemeral, hello_.public_key);
    if (!secret.ok()) return {{}, false, secret.error().message};
    const Build& own = identity_.build;
    const Build theirs{hello_.version, proof->commit, proof->protocol_hash};
    if (!DigestsEqual(proof->mac, ProofMac(*secret, kClientProof, transcript_, *proof))) {
        const RefuseMessage wrong{Refusal::kWrongKey};
        return {PlainFrame(FrameType::kRefuse, Encode(wrong)), false, std::string(kWrongKey)};
    }
    const auto refuse = [&](RefuseMessage message, std::string why) {
        message.mac = RefusalMac(*secret, transcript_, message);
        return Step{PlainFrame(FrameType::kRefuse, Encode(message)), false, std::move(why), true};
    };
    if (!CanWorkTogether(theirs, own)) {
        return refuse({Refusal::kVersion, own.version, own.commit, own.protocol_hash},
                      RefusalText("it", theirs, own));
    }
    if (auto answer = places ? places(proof->request) : std::nullopt; answer.has_value()) {
        RefuseMessage message{.reason = Refusal::kBusy, .answer = std::move(*answer)};
        CutToFrame(message);
        Step step = refuse(std::move(message), "no place for its job");
        step.busy = true;
        return step;
    }
    session_.send_key = Mac(*secret, kServerFrames, transcript_);
    session_.receive_key = Mac(*secret, kClientFrames, transcript_);
    session_.timeout_ms = hello_.timeout_ms;
    ProofMessage welcome{{}, own.version, own.commit, own.protocol_hash};
    welcome.mac = ProofMac(*secret, kServerProof, transcript_, welcome);
    return {PlainFrame(FrameType::kWelcome, Encode(welcome)), true, "", true};
}

}  // namespace weft::cluster

// Handshake of two processes that share a key, and the sealing of later frames.
//
//     rank 0 -> worker   hello:     protocol, version, timeout, public key
//     worker -> rank 0   challenge: protocol, public key
//     rank 0 -> worker   proof:     MAC("weft control client" | transcript | build | request)
//     worker -> rank 0   welcome:   MAC("weft control server" | transcript | build)
//
// The transcript is the prologue (bytes that passed before the hello), the hello and the challenge,
// each with its length. The build is the sender's commit and protocol hash (build.h). Proof and
// welcome contain the sender's build besides the MAC. The worker refuses a caller with another
// version or protocol hash, and each side receives the other's build. The request is for a slot of
// the worker or a position in its waiting line (waiting_line.h).
//
// MAC(text) is HMAC(secret, text), and the secret is HMAC(key, "weft control secret" | shared): the
// 32 bytes of `shared` are the X25519 secret (RFC 7748) of the two public keys, which are fresh in
// each handshake. Both ends then erase it and their private keys. So someone who later obtains the
// key cannot read a recorded session (forward secrecy), and a recorded handshake proves nothing
// (replay). A changed byte of the transcript gives a wrong MAC. Each side's MAC has a label of its
// own, so a message cannot be sent back to its sender as proof (reflection). The caller proves the
// key first, so a caller without the key receives only the protocol's number.
//
// A refusal of a caller that proved the key has a MAC too. The number of another protocol and
// "wrong key" cannot have one, so their texts state that they are not authenticated.
//
// Each direction then has its own key, MAC(label | transcript). AES-256-GCM (NIST SP 800-38D, by
// OpenSSL) seals every frame under that key, with the frame's sequence number as nonce and its type
// as associated data. Eavesdroppers thus cannot read the Tokens of data links (net/offer.h), and an
// altered, repeated, dropped or reordered frame ends the connection.
//
// These functions use no socket and no clock (keys come from the kernel's random source).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/frame.h"
#include "cluster/join/build.h"
#include "cluster/join/ephemeral_key.h"

namespace weft::cluster {

// Reads the shared key: the file's bytes without trailing white space, 16 to 4096 of them. Errors:
// kNotFound, kIo, kUnsupported (too short, too long; states how to make one).
Result<Bytes> ReadKeyFile(const std::string& path);

// Identity of this program. Only tests change the defaults.
struct Identity {
    uint32_t protocol = kProtocol;
    Build build{};
};

// State of one end of a connection after the handshake. The parent sends it through a pipe to a
// rank's process.
struct Session {
    Sha256Digest send_key{};
    Sha256Digest receive_key{};
    uint64_t sent = 0;
    uint64_t received = 0;
    int64_t timeout_ms = 0;
};

// Appends `payload` as a sealed frame. more: further frames of the same message follow.
void SealFrame(Session& session, Bytes& out, FrameType type, View payload, bool more = false);
// The payload of the next frame of this session. Errors: kDenied (altered, or out of order).
Result<Bytes> OpenFrame(Session& session, const Frame& frame);

Bytes EncodeSession(const Session& session);
Result<Session> DecodeSession(View bytes);
// Both ends of a connection without a handshake: a socket pair to our own child.
std::pair<Session, Session> MakeSessionPair(int64_t timeout_ms);

// The caller (rank 0). Send First() at once; pass each received frame to On(), which returns the
// next bytes to send, or nothing once done() is true.
class ClientHandshake {
  public:
    // name: the worker's name in errors: "worker h2:7000". prologue: bytes received before First().
    ClientHandshake(std::string name, Bytes key, int64_t timeout_ms, Identity identity = {},
                    Bytes prologue = {});
    void SetRequest(const PlaceRequest& request) { request_ = request; }
    Bytes First() const;
    // Errors: kDenied with the reason, kCorrupt; to retry: kTimeout if the worker is busy, kIo
    // after a refusal with a wrong MAC.
    Result<Bytes> On(const Frame& frame);
    // Whether frames now carry a tag (the proof was sent).
    bool done() const { return done_; }
    // Once done: warns of a worker with another version or commit; "": no warning.
    std::string BuildWarning() const;
    const Session& session() const { return session_; }
    // The answer of a worker that did not give a place.
    const std::optional<PlaceAnswer>& answer() const { return answer_; }

  private:
    Result<Bytes> OnChallenge(const Frame& frame);
    Error Refused(RefuseMessage message);

    std::string name_;
    PlaceRequest request_;
    std::optional<PlaceAnswer> answer_;
    Build worker_;
    Bytes key_;
    Identity identity_;
    Bytes prologue_;
    EphemeralKey ephemeral_;
    HelloMessage hello_;
    Bytes transcript_;
    Secret secret_;  // not null: the proof was sent
    bool done_ = false;
    Session session_;
};

// Whether a worker refused the caller because it runs other jobs.
bool IsBusy(const Error& error);
// "worker b:7000 is running another job (...)".
std::string BusyText(const std::string& name, const PlaceAnswer& answer);
// "training of 10.0.0.1:40312, for 95 s; place 2 of 3 in line"; the last part if the caller waits.
std::string AnswerText(const PlaceAnswer& answer);

// ServerHandshake::Step::refused for a caller with another key.
inline constexpr std::string_view kWrongKey = "wrong key, or a message was altered on the way";

// The other side of the handshake: a process that was dialed.
class ServerHandshake {
  public:
    // prologue: bytes sent to the caller before its hello.
    explicit ServerHandshake(View key, Identity identity = {}, Bytes prologue = {});
    struct Step {
        Bytes send;           // to the caller, also with `refused`
        bool done = false;    // authenticated: session() is valid
        std::string refused;  // not empty: send, close, and log it
        bool proved = false;  // the caller has the key; set with `refused` too
        bool busy = false;    // `places` had no place for it; set with `refused`
    };
    // Called for a caller that proved the key. nullopt: its job may begin. If null, every job may
    // begin.
    using Places = std::function<std::optional<PlaceAnswer>(const PlaceRequest& request)>;
    Step On(const Frame& frame, const Places& places = nullptr);
    const Session& session() const { return session_; }

  private:
    Step OnHello(const Frame& frame);
    Step OnProof(const Frame& frame, const Places& places);

    View key_;
    Identity identity_;
    Bytes prologue_;
    std::optional<EphemeralKey> ephemeral_{};  // from the hello to the proof
    HelloMessage hello_;
    Bytes transcript_;
    Session session_;
};

}  // namespace weft::cluster

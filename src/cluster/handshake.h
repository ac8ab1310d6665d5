// Handshake of two processes that share a key, and the sealing of later frames.
//
//     rank 0 -> worker   hello:     protocol, version, timeout, nonce
//     worker -> rank 0   challenge: protocol, nonce
//     rank 0 -> worker   proof:     HMAC(key, "weft control client" | hello | challenge | build)
//     worker -> rank 0   welcome:   HMAC(key, "weft control server" | hello | challenge | build)
//
// The build is the sender's commit and protocol hash (build.h). Proof and welcome contain the
// sender's build besides the MAC. The worker refuses a caller with another version or protocol
// hash, and each side learns the other's build.
//
// Both nonces are fresh and the MAC covers both messages, so a recorded handshake proves nothing
// (replay). Each side's MAC has a label of its own, so a message cannot be sent back to its sender
// as proof (reflection). The caller proves the key first, so a caller without the key learns only
// the protocol's number.
//
// Each direction then has its own key, HMAC(key, label | hello | challenge). AES-256-GCM (NIST SP
// 800-38D, by OpenSSL) seals every frame under that key, with the frame's sequence number as nonce
// and its type as associated data. Eavesdroppers thus cannot read the Tokens of data links
// (net/offer.h), and an altered, repeated, dropped or reordered frame ends the connection.
//
// These functions use no socket and no clock (nonces come from the kernel).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cluster/build.h"
#include "cluster/frame.h"

namespace weft::cluster {

// Reads the shared key: the file's bytes without trailing white space, 16 to 4096 of them. Errors:
// kNotFound, kIo, kUnsupported (too short, too long; says how to make one).
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

// Appends `payload` as a sealed frame.
void SealFrame(Session& session, Bytes& out, FrameType type, View payload);
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
    // name: the worker's, for errors: "worker h2:7000".
    ClientHandshake(std::string name, Bytes key, int64_t timeout_ms, Identity identity = {});
    Bytes First() const;
    // Errors: kDenied with the reason, kCorrupt; kTimeout if the worker is busy (retry).
    Result<Bytes> On(const Frame& frame);
    // Whether frames now carry a tag (the proof was sent).
    bool done() const { return done_; }
    // Once done: warns of a worker with another commit; "": no warning.
    std::string CommitWarning() const;
    const Session& session() const { return session_; }

  private:
    Result<Bytes> OnChallenge(const Frame& frame);
    Error Refused(const RefuseMessage& message) const;

    std::string name_;
    Build worker_;
    Bytes key_;
    Identity identity_;
    HelloMessage hello_;
    Bytes transcript_;
    bool proved_ = false;
    bool done_ = false;
    Session session_;
};

// Whether a worker refused the caller because it runs another job.
bool IsBusy(const Error& error);

// ServerHandshake::Step::refused for a caller with another key.
inline constexpr std::string_view kWrongKey = "wrong key";

// The other side of the handshake: a process that was dialed.
class ServerHandshake {
  public:
    explicit ServerHandshake(View key, Identity identity = {});
    struct Step {
        Bytes send;           // to the caller, also with `refused`
        bool done = false;    // authenticated: session() is valid
        std::string refused;  // not empty: send, close, and log it
    };
    // busy: a job runs, so a caller that proves the key is refused. about: called for such a
    // caller, returns a description of that job; may be null.
    using About = std::function<std::string()>;
    Step On(const Frame& frame, bool busy, const About& about = nullptr);
    const Session& session() const { return session_; }

  private:
    Step OnHello(const Frame& frame);
    Step OnProof(const Frame& frame, bool busy, const About& about);

    View key_;
    Identity identity_;
    HelloMessage hello_;
    Bytes transcript_;
    bool challenged_ = false;
    Session session_;
};

}  // namespace weft::cluster

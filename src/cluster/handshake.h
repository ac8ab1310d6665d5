// The handshake of two processes that share a key, and the sealing of frames after it.
//
//     rank 0 -> worker   hello:     protocol, version, timeout, nonce
//     worker -> rank 0   challenge: protocol, nonce
//     rank 0 -> worker   proof:     HMAC(key, "weft control client" | hello | challenge | build)
//     worker -> rank 0   welcome:   HMAC(key, "weft control server" | hello | challenge | build)
//
// The build is the sender's commit and protocol hash (build.h), which the message holds beside the
// MAC. The worker refuses a caller of another version or hash, and both are told of both builds.
//
// Both nonces are fresh and both whole messages are inside the MAC, so a recorded handshake proves
// nothing (replay), and the role's label makes one side's proof useless to the other (reflection).
// The caller proves first: who has no key learns the protocol's number and nothing else.
//
// Then each direction has its own key, HMAC(key, label | hello | challenge), and every frame is
// sealed by AES-256-GCM (NIST SP 800-38D, by OpenSSL) under it, with the running number of the
// frame as nonce and its type as associated data. So nobody on the way reads the tokens of the
// data links, and a frame that is altered, repeated, dropped or reordered ends the connection.
//
// Pure: bytes in, bytes out; no socket, no clock (nonces come from the kernel).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cluster/build.h"
#include "cluster/frame.h"

namespace weft::cluster {

// The shared key. Reads the file's bytes without trailing white space; 16 to 4096 of them.
// Errors: kNotFound, kIo, kUnsupported (too short, too long; says how to make one).
Result<Bytes> ReadKeyFile(const std::string& path);

// Who this program is. Other values than the default are for tests.
struct Identity {
    uint32_t protocol = kProtocol;
    Build build{};
};

// What both ends hold after the handshake. Travels to a rank's process through a pipe.
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
// The two ends of a connection that needs no handshake: a socket pair to our own child.
std::pair<Session, Session> MakeSessionPair(int64_t timeout_ms);

// The caller (rank 0). First() is sent at once; each frame that arrives goes to On(), which
// returns what to send next, or nothing once done() is true.
class ClientHandshake {
  public:
    // name: of the worker, for errors: "worker h2:7000".
    ClientHandshake(std::string name, Bytes key, int64_t timeout_ms, Identity identity = {});
    Bytes First() const;
    // Errors: kDenied with the reason, kCorrupt. A busy worker: kTimeout (worth another attempt).
    Result<Bytes> On(const Frame& frame);
    // Whether frames carry a tag now (the proof was sent).
    bool done() const { return done_; }
    // Of a worker of another commit, once done; "": none is due.
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

// Whether a worker refused the caller since it runs another job.
bool IsBusy(const Error& error);

// ServerHandshake::Step::refused, of a caller with another key.
inline constexpr std::string_view kWrongKey = "wrong key";

// The listener.
class ServerHandshake {
  public:
    explicit ServerHandshake(View key, Identity identity = {});
    struct Step {
        Bytes send;           // to the caller, also when `refused` is not empty
        bool done = false;    // authenticated: session() holds
        std::string refused;  // not empty: send, then close; for the log
    };
    // busy: refuse who proves the key, since a job is running. about: what that job is, asked for
    // such a caller alone; may be null.
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

// Server-side TLS 1.2 and 1.3 over a non-blocking socket. OpenSSL reads and writes the socket
// directly and releases its buffers when a connection is idle; a wrapper library would hold 70 KB
// per idle connection.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace weft::serve {

// A certificate and its private key. Immutable; any thread.
class TlsContext {
  public:
    // Loads PEM files. Errors: kUsage (a file is unreadable or not PEM, or certificate and key do
    // not match).
    static Result<std::shared_ptr<const TlsContext>> Load(const std::string& cert,
                                                          const std::string& key);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;
    ssl_ctx_st* get() const { return context_; }

  private:
    explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
    ssl_ctx_st* context_;
};

enum class TlsStep {
    kDone,
    kWantRead,   // call again when the socket is readable
    kWantWrite,  // call again when the socket is writable
    kClosed,     // the peer closed
    kPlainHttp,  // handshake: the client sent plain HTTP
    kFailed,
};

// TLS state of one connection. One thread at a time. The caller owns the socket, keeps it open
// longer than this object, and blocks or ignores SIGPIPE.
class TlsStream {
  public:
    TlsStream(const TlsContext& context, int fd);
    ~TlsStream();
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    TlsStep Handshake();
    TlsStep Read(std::span<char> out, size_t& got);
    // After kWantRead or kWantWrite, pass the same bytes again (at any address), optionally with
    // more.
    TlsStep Write(std::string_view bytes, size_t& put);
    // Sends close_notify if the socket accepts it; does not wait.
    void Shutdown();

  private:
    TlsStep StepOf(int returned);
    ssl_st* ssl_;
};

}  // namespace weft::serve

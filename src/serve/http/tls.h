// TLS 1.2 and 1.3 of a server over a non-blocking socket, by OpenSSL. Straight on the socket and
// with buffers released when idle: a library in between would hold 70 KB for each idle connection.
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

// A certificate and its key. Immutable; any thread.
class TlsContext {
  public:
    // PEM files. kUsage: not readable, not PEM, or not belonging together.
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
    kWantRead,   // again when the socket is readable
    kWantWrite,  // again when it is writable
    kClosed,     // the peer closed
    kPlainHttp,  // handshake: the client speaks HTTP without TLS
    kFailed,
};

// One connection's. One thread at a time. The socket is the caller's, open for longer than this;
// its thread has SIGPIPE blocked or ignored.
class TlsStream {
  public:
    TlsStream(const TlsContext& context, int fd);
    ~TlsStream();
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    TlsStep Handshake();
    TlsStep Read(std::span<char> out, size_t& got);
    // After kWant... the same bytes come again (at any address), with or without more.
    TlsStep Write(std::string_view bytes, size_t& put);
    // Says goodbye, if the socket takes it; waits for nothing.
    void Shutdown();

  private:
    TlsStep StepOf(int returned);
    ssl_st* ssl_;
};

}  // namespace weft::serve

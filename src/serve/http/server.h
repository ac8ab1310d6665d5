// An event-driven HTTP/1.1 server (RFC 9110, 9112; accepts 1.0 clients), plain or over TLS.
// HttpOptions::threads threads (one by default) serve all connections. The handler receives
// complete, checked requests and answers each through its Exchange, at once or as a stream, from
// any thread.
//
//     WEFT_ASSIGN(auto server, HttpServer::Start(options, [&](std::shared_ptr<Exchange> exchange) {
//         exchange->Send(200, {{"Content-Type", "text/plain"}}, "hello\n");
//     }));
//
// The server itself ("the layer") rejects malformed, oversized, slow and excess requests
// (ErrorBody(), 400 to 505), answers CORS preflights and OPTIONS, and enforces HttpLimits. The
// handler also gets HEAD requests; the layer sends the length of the answer's body, but not the
// body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "serve/http/message.h"

namespace weft::serve {

// Facts that the handler adds to the request's log line. -1: unknown.
struct RequestNote {
    std::string key{};  // the name of the API key
    std::string error{};
    std::string left_out{};  // members and schema keywords of the request without effect
    bool passed_on = false;  // another process answers and logs the request
    int64_t prompt_tokens = -1, cached_tokens = -1, generated_tokens = -1;
    double queue_s = -1, first_token_s = -1;
};

// One request and its answer. Methods may be called from any thread; none blocks or throws.
//
// Answer with Send(), or with Begin(), any number of Write(), and End(). Calls in another order,
// and calls after the client disconnects, have no effect. If the last reference is released without
// an answer, the client gets 500; a stream that has begun is cut.
class Exchange {
  public:
    virtual ~Exchange() = default;
    // The returned request is valid as long as the exchange. Its path is decoded.
    virtual const HttpRequest& request() const = 0;

    // The complete answer. The layer adds Content-Length, Date, Connection, X-Request-Id and CORS.
    virtual void Send(int status, Headers headers, std::string body) = 0;
    // Send without a copy: `body` outlives the server, and counts toward no limit of memory.
    virtual void SendKept(int status, Headers headers, std::string_view body) {
        Send(status, std::move(headers), std::string(body));
    }
    // Begins a stream: chunked in HTTP/1.1, until close in HTTP/1.0. Write sends at once; bytes
    // that the client has not read yet are stored and counted like an answer of Send().
    virtual void Begin(int status, Headers headers) = 0;
    virtual void Write(std::string chunk) = 0;
    virtual void End() = 0;
    // Write() and End(); the last bytes and the end of the stream are sent together.
    virtual void EndWith(std::string last) {
        Write(std::move(last));
        End();
    }

    // The client disconnected or was cut off before the answer was complete.
    virtual bool gone() const = 0;
    // Calls `callback` when gone() becomes true: at most once, on the I/O thread, or immediately if
    // gone() is already true. The callback is released when the answer is complete (End or Send),
    // so it may hold the Exchange. A second callback replaces the first.
    virtual void OnDisconnect(std::function<void()> callback) = 0;
    // Calls `fill` each time that the stream has been silent for HttpLimits::silence_ms, on the I/O
    // thread, and sends the bytes that it returns. `fill` must not block or call the Exchange. It
    // is released with the Exchange's connection. The stream has begun.
    virtual void OnSilence(std::function<std::string()> fill) = 0;
    // Number of written bytes that the socket has not accepted yet.
    virtual size_t backlog_bytes() const = 0;
    // Counts `bytes`, the answer's total size so far, until the answer is sent or dropped. The
    // bytes count toward HttpLimits::all_bodies_bytes, and toward the share of the API key
    // (RequestNote::key). If a limit is exceeded, returns a refusal, which the handler should send
    // instead. Call this before Send(), which counts its body without a check.
    virtual std::optional<Refusal> Hold(size_t bytes) = 0;
    // Counts memory that the handler uses for the request, until Release() or the end of the
    // answer. It counts toward HttpLimits::all_bodies_bytes as with Hold(), and toward the share of
    // the key only if of_key.
    virtual std::optional<Refusal> Reserve(size_t bytes, bool of_key) = 0;
    virtual void Release() = 0;
    // Edits HttpRecord::note before the answer is complete. `edit` runs immediately, under a lock;
    // it must not call the Exchange.
    virtual void Note(const std::function<void(RequestNote&)>& edit) = 0;
};

// Runs on the I/O thread and must not block: pass work of more than about 100 us to another thread.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct HttpLimits {
    // Connections that answer a request with a key or wait for the next one (seats.h). Beyond: idle
    // ones are closed, and if none is idle, the answer is 503.
    size_t max_connections = 8192;
    // Connections of a network (an IPv4 address or an IPv6 /64) that sent no request, or whose last
    // request had no key. Beyond: the oldest is closed. 0: a quarter of max_connections.
    size_t max_strangers = 0;
    size_t head_bytes = 16 << 10;  // request line and headers; beyond: 414, 431
    size_t headers = 100;          // beyond: 431
    // Beyond this or all_bodies_bytes: 413, without reading the rest.
    uint64_t body_bytes = 32 << 20;
    // Limit of the bytes that are held in total: bodies of requests that are being received or
    // answered, and answers that are being made or that clients have not read yet. Beyond: 503, or
    // 429 for a client that holds half of the limit; the clients that read slowest are cut off.
    uint64_t all_bodies_bytes = 256ull << 20;
    int64_t idle_ms = 75'000;  // then a connection without a request is closed
    int64_t head_ms = 10'000;  // for the TLS handshake, or for a head from its first byte; then 408
    int64_t body_ms = 120'000;  // for a body, from the end of the head; then 408
    // In each interval of body_grace_ms, the body must arrive at body_bytes_per_s at least, and the
    // interval must add at least a 16th of the bytes received before it; else 408.
    int64_t body_grace_ms = 10'000;
    int64_t body_bytes_per_s = 1024;
    int64_t stall_ms = 30'000;   // less than 4 KB written in this time: cut off
    int64_t silence_ms = 8'000;  // see Exchange::OnSilence
    int64_t slow_ms = 1'000;     // the same limit while more than all_bodies_bytes are held
    int64_t linger_ms = 2'000;   // longest wait for the client to close after a refusal
};

// Outcome of a request, for logs and metrics. Reported on an I/O thread.
struct HttpRecord {
    // empty method and path: no request was parsed
    std::string id{}, peer{}, method{}, path{};
    int status = 0;           // 0: disconnected before any answer
    uint64_t sent_bytes = 0;  // body and framing accepted by the socket
    double seconds = 0;       // from the first byte of the head
    bool gone = false;        // see Exchange::gone()
    bool refused = false;     // answered by the layer itself
    RequestNote note{};
};

struct HeadVerdict {
    std::optional<Refusal> refusal{};
    // The client for which the body counts: all bodies of one client together may hold half of
    // all_bodies_bytes. "": unknown client; there is no such limit.
    std::string client{};
};

struct HttpOptions {
    // A name or an address: "::1" or "[::1]"; "0.0.0.0": all IPv4 addresses; "::": all IPv4 and
    // IPv6 addresses. The server listens on all addresses of a name.
    std::string host = "127.0.0.1";
    int port = 8080;  // 0: any
    // PEM files; both or neither. The certificate file includes its chain.
    std::string tls_cert{}, tls_key{};
    // CORS: origins whose scripts may call the API ("https://chat.example"), or "*".
    std::vector<std::string> allow_origins{};
    // Allowed values of the Host header ("localhost", "127.0.0.1", "[::1]"); others get 421; empty:
    // any. A server without keys needs this list. Otherwise a web page could reach the server by
    // pointing the page's own host name at this machine (DNS rebinding).
    std::vector<std::string> allowed_hosts{};
    // Paths answered while draining ("/health", "/metrics").
    std::vector<std::string> drain_paths{};
    // More headers that carry the request id: {"/v1/messages", "request-id"} for paths with that
    // prefix.
    std::vector<std::pair<std::string, std::string>> id_headers{};
    // No request needs a key. A POST then counts as a request with a key (seats.h).
    bool keyless = false;
    int retry_after_s = 5;  // sent with 503
    // All requests come from a server on this machine (serve/pool), which names their peers in
    // X-Forwarded-For.
    bool behind_front = false;
    size_t files_per_connection = 1;  // 2 if each request is passed on by another connection
    int threads = 1;
    HttpLimits limits{};
    std::function<void(const HttpRecord&)> observer{};  // may be empty
    // Judges a request by its head. A refusal is sent at once, and the body is not counted. Not
    // called for a POST whose body arrived together with its head. Called on an I/O thread; may be
    // empty.
    std::function<HeadVerdict(const HttpRequest& head)> judge_head{};
};

struct HttpStats {
    uint64_t connections = 0;                     // open now
    uint64_t accepted = 0;                        // since the start, like all that follow
    uint64_t turned_away = 0;                     // too many connections, or no file descriptors
    uint64_t displaced = 0;                       // closed to accept others
    uint64_t requests = 0;                        // passed to the handler
    uint64_t refused = 0;                         // answered with an error by the layer itself
    uint64_t timed_out = 0;                       // time-outs, answered with an error or not
    uint64_t client_gone = 0;                     // disconnected before the answer was complete
    uint64_t cut_off = 0;                         // slow readers that were cut off
    uint64_t tls_failed = 0;                      // failed handshakes
    uint64_t received_bytes = 0, sent_bytes = 0;  // without TLS overhead
    uint64_t body_bytes = 0;                      // held now, of all_bodies_bytes; includes answers
};

// For a server without keys: sets `keyless`, and adds localhost, 127.0.0.1, ::1 and options.host to
// allowed_hosts. A "*" in the list empties it, which allows all hosts.
void NeedNoKeys(HttpOptions& options);

class HttpServer {
  public:
    // When it returns, the server already accepts connections. Raises the process's soft limit of
    // open files for max_connections, up to the hard limit. Errors: kUsage (host, port, TLS files),
    // kIo (port in use; the message names the next step).
    static Result<std::unique_ptr<HttpServer>> Start(HttpOptions options, Handler handler);
    // Closes all connections and marks open exchanges gone. Held exchanges may still be called; the
    // calls have no effect. Not on an I/O thread.
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    int port() const;
    // "http://127.0.0.1:8080"
    std::string url() const;
    // From now on every answer that begins closes its connection ("Connection: close"); new
    // connections are still accepted. A balancer then holds no connection that Drain() could close
    // under a request. Any thread.
    void EndKeepAlive();
    // New requests get 503 with Retry-After and their connections are closed; idle connections are
    // closed at once; open exchanges continue. When it returns, the handler has received every
    // request that was not refused (except those of drain_paths), unless an I/O thread hangs for
    // two seconds. Not on an I/O thread.
    void Drain();
    size_t open_exchanges() const;
    HttpStats stats() const;
    // Reloads the TLS files for new connections; on an error the old ones stay. Any thread.
    Status ReloadTls();

  private:
    class Impl;
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve

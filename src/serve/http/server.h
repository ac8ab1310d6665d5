// An HTTP/1.1 server (RFC 9110, 9112; 1.0 clients too), plain or over TLS, that is driven by
// events: one thread for all connections (more on request), none a connection. A handler gets
// whole, checked requests and answers each through its Exchange, at once or as a stream, from any
// thread.
//
//     WEFT_ASSIGN(auto server, HttpServer::Start(options, [&](std::shared_ptr<Exchange> exchange) {
//         exchange->Send(200, {{"Content-Type", "text/plain"}}, "hello\n");
//     }));
//
// The layer itself answers what is no request, too large, too slow or too much (ErrorBody(), with
// 400 to 505), CORS preflights and OPTIONS, and keeps to HttpLimits whatever a client does. HEAD
// comes to the handler as it is; what it sends as a body is then counted and left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "serve/http/message.h"

namespace weft::serve {

// What whoever answers a request knows of it, for its line in the log. -1: nothing.
struct RequestNote {
    std::string key{};  // the name of the API key
    std::string error{};
    std::string left_out{};  // what of the request's schemas the answer isn't held to
    int64_t prompt_tokens = -1, cached_tokens = -1, said_tokens = -1;
    double queue_s = -1, first_token_s = -1;
};

// One request and its answer. All methods from any thread; none blocks or throws.
//
// Answer with Send(), or with Begin(), any number of Write() and End(). Calls out of that order,
// and all after the client has gone, do nothing. An Exchange of which the last reference goes
// without an answer sends 500, or cuts a stream that has begun.
class Exchange {
  public:
    virtual ~Exchange() = default;
    // Lives as long as the exchange; the path says what the client asked for, decoded.
    virtual const HttpRequest& request() const = 0;

    // The whole answer. The layer adds Content-Length, Date, Connection, X-Request-Id and CORS.
    virtual void Send(int status, Headers headers, std::string body) = 0;
    // Begins a stream: chunks of HTTP/1.1, bytes until the end for HTTP/1.0. What is written goes
    // out at once. A client that takes it too slowly is cut off (HttpLimits: backlog, stall): who
    // writes more than that at once looks at backlog_bytes().
    virtual void Begin(int status, Headers headers) = 0;
    virtual void Write(std::string chunk) = 0;
    virtual void End() = 0;

    // The client left, or was cut off, before its answer was complete.
    virtual bool gone() const = 0;
    // Calls back when that happens, at most once, on the I/O thread; here and now if it has
    // happened. Forgotten once the answer is complete (End or Send); so it may hold the Exchange.
    // One callback: a second one replaces the first.
    virtual void OnGone(std::function<void()> callback) = 0;
    // Written and not yet taken by the socket.
    virtual size_t backlog_bytes() const = 0;
    // The answer, as far as it is there, takes so many bytes in all: counts them with the bodies of
    // requests (HttpLimits::all_bodies_bytes) and for the key in its note, until the answer is sent
    // or given up. Or the refusal that is to be sent in its place. Before Send(), which counts its
    // body in any case.
    virtual std::optional<Refusal> Hold(size_t bytes) = 0;
    // The work on the request may take so much memory: counts it as Hold() does, but for no key,
    // until Release() or the end of the answer.
    virtual std::optional<Refusal> Reserve(size_t bytes) = 0;
    virtual void Release() = 0;
    // Adds to HttpRecord::note, before the answer is complete. `edit` is called here and now, under
    // a lock: it calls nothing.
    virtual void Note(const std::function<void(RequestNote&)>& edit) = 0;
};

// Called on the I/O thread: must not block, hand on what takes longer than some 100 us.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct HttpLimits {
    size_t max_connections = 8192;             // beyond: 503
    size_t head_bytes = 16 << 10;              // request line and headers; beyond: 414, 431
    size_t headers = 100;                      // beyond: 431
    uint64_t body_bytes = 32 << 20;            // beyond: 413, without reading on
    uint64_t all_bodies_bytes = 256ull << 20;  // of all requests read or answered, and of answers
                                               // that are made or not read yet; beyond: 503, 429
                                               // where one client has half of it, and the slowest
                                               // readers are cut off
    size_t backlog_bytes = 1 << 20;            // of a stream, after the socket took what it could
    int64_t idle_ms = 75'000;                  // a connection without a request; then closed
    int64_t head_ms = 10'000;                  // TLS handshake; from the first byte of a head: 408
    int64_t body_ms = 120'000;                 // from the head to the end of the body: 408
    int64_t body_grace_ms = 10'000;   // in each such time the body needs to come with at least
    int64_t body_bytes_per_s = 1024;  // this rate, and a 16th of what has come before: 408
    int64_t stall_ms = 30'000;        // no (4 KB of) progress in writing: cut off
    int64_t slow_ms = 1'000;          // the same, while more than all_bodies_bytes are held
    int64_t linger_ms = 2'000;        // wait for the client to close after a refusal
};

// What became of a request: for logs and metrics. Called on an I/O thread.
struct HttpRecord {
    // method and path are empty where there was no request
    std::string id{}, peer{}, method{}, path{};
    int status = 0;           // 0: gone before any answer
    uint64_t sent_bytes = 0;  // body and framing, as far as the socket took it
    double seconds = 0;       // from the first byte of its head
    bool gone = false;        // see Exchange::gone()
    bool refused = false;     // answered by the layer itself
    RequestNote note{};
};

struct HeadVerdict {
    std::optional<Refusal> refusal{};
    // Whose body it is: several bodies of one client hold half of all_bodies_bytes at most. "":
    // nobody knows, there is no such bound.
    std::string client{};
};

struct HttpOptions {
    // A name or an address, "::1" or "[::1]"; "0.0.0.0" all of IPv4, "::" all of both. All
    // addresses of a name are listened on.
    std::string host = "127.0.0.1";
    int port = 8080;  // 0: any
    std::string tls_cert{},
        tls_key{};  // PEM files; both or neither. The certificate with its chain.
    // CORS: origins that scripts of web pages may call from ("https://chat.example"), or "*".
    std::vector<std::string> allow_origins{};
    // Names that requests may have in their Host header ("localhost", "127.0.0.1", "[::1]"), others
    // get 421; empty: any. For a server that trusts whoever reaches it: web pages can, by making
    // their own name point here (DNS rebinding).
    std::vector<std::string> allowed_hosts{};
    // Paths that are answered even while draining ("/health", "/metrics").
    std::vector<std::string> drain_paths{};
    // Further names of X-Request-Id: {"/v1/messages", "request-id"} for all paths that begin so.
    std::vector<std::pair<std::string, std::string>> id_headers{};
    int retry_after_s = 5;  // of 503
    int threads = 1;
    HttpLimits limits{};
    std::function<void(const HttpRecord&)> observer{};  // may be empty
    // What becomes of a request (but for a POST whose body has come as well) by its head: a refusal
    // is answered at once, and of its body nothing is counted. On an I/O thread; may be empty.
    std::function<HeadVerdict(const HttpRequest& head)> judge_head{};
};

struct HttpStats {
    uint64_t connections = 0;                     // open now
    uint64_t accepted = 0;                        // since the start, as all that follow
    uint64_t turned_away = 0;                     // too many connections, or no file descriptors
    uint64_t requests = 0;                        // given to the handler
    uint64_t refused = 0;                         // answered with an error by the layer itself
    uint64_t timed_out = 0;                       // of these, or without an answer: too slow
    uint64_t client_gone = 0;                     // left before the end of their answers
    uint64_t cut_off = 0;                         // slow readers
    uint64_t tls_failed = 0;                      // handshakes
    uint64_t received_bytes = 0, sent_bytes = 0;  // without TLS's own
    uint64_t body_bytes = 0;                      // of all_bodies_bytes, held now; also answers
};

// Adds localhost, 127.0.0.1, ::1 and options.host to allowed_hosts, for a server that asks for no
// keys; a "*" among them empties the list: all are allowed.
void AllowOwnNames(HttpOptions& options);

class HttpServer {
  public:
    // Listens and serves when it returns. Errors: kUsage (host, port, TLS files), kIo (a port in
    // use: the message says what to do). Raises the process' soft limit of open files to what
    // max_connections needs, as far as the hard one allows.
    static Result<std::unique_ptr<HttpServer>> Start(HttpOptions options, Handler handler);
    // Closes all connections; every open exchange is gone. Not on an I/O thread. Exchanges that are
    // still held may be used, and do nothing.
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    int port() const;
    // "http://127.0.0.1:8080"
    std::string url() const;
    // From here on new requests get 503 with Retry-After and their connections are closed; idle
    // ones are closed at once; exchanges that are open go on. Any thread.
    void Drain();
    size_t open_exchanges() const;
    HttpStats stats() const;
    // Reads the TLS files again, for new connections; on an error the old ones stay. Any thread.
    Status ReloadTls();

  private:
    class Impl;
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve

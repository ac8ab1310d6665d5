// Inside the server: what an Exchange and the connection that it came by share. Any thread answers;
// the I/O thread takes what is to be sent, and says when the client has gone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/server.h"

namespace weft::serve {

// The connection, as its exchange sees it.
class ExchangeOwner {
  public:
    virtual ~ExchangeOwner() = default;
    // There is something to send. Any thread; returns at once.
    virtual void Wake() = 0;
    // No further request is wanted on this connection. Any thread.
    virtual bool closing() const = 0;
    // Counts bytes of an answer whose request has `own` already, or says why not. Add counts them
    // in any case, LetGo no longer. Any thread.
    virtual std::optional<Refusal> Hold(const std::string& client, size_t bytes, size_t own) = 0;
    virtual void Add(const std::string& client, size_t bytes) = 0;
    virtual void LetGo(const std::string& client, size_t bytes) = 0;
};

class ExchangeState {
  public:
    // extra: headers that every answer has (CORS).
    ExchangeState(HttpRequest request, bool keep_alive, Headers extra,
                  std::shared_ptr<ExchangeOwner> owner);

    // What handlers call; see Exchange.
    void Send(int status, Headers headers, std::string body);
    void Begin(int status, Headers headers);
    void Write(std::string chunk);
    void End();
    void OnGone(std::function<void()> callback);
    std::optional<Refusal> Hold(size_t bytes);
    std::optional<Refusal> Reserve(size_t bytes);
    void Release();
    // Nobody can answer any more.
    void Abandon();
    void Note(const std::function<void(RequestNote&)>& edit);
    bool gone() const { return gone_; }
    size_t backlog_bytes() const { return backlog_bytes_; }
    const HttpRequest& request() const { return request_; }

    // The I/O thread's.
    // Appends to `out` what is to be sent; true: that is all of the answer.
    bool TakeOutput(std::vector<std::string>& out);
    void Sent(size_t bytes);
    // The socket does not take what is left of the answer: that is counted. (A whole answer stays
    // counted until its end.)
    void CountBacklog();
    // Who made the request, as its note says.
    std::string client() const;
    // The answer is complete, as far as its writer is concerned.
    bool complete() const;
    bool stream() const;
    bool keep_alive() const;
    int status() const;
    RequestNote note() const;
    uint64_t sent_bytes() const { return sent_bytes_; }
    // Sends what a client passes over, to see whether it is there: of a stream of events a comment,
    // of lines of JSON a blank before the next one. False: the answer has not begun.
    bool Probe();
    // All is sent, or nothing more can be: lets the connection go. Gone() calls back.
    void Done();
    void Gone();

  private:
    void BeginLocked(int status, const Headers& headers, Framing framing, uint64_t length_bytes);
    void QueueLocked(std::string bytes);
    void WakeLocked();
    void CountLocked(size_t bytes);
    std::shared_ptr<ExchangeOwner> LeaveOwnerLocked();

    const HttpRequest request_;
    const Headers extra_;
    mutable std::mutex mutex_;
    std::shared_ptr<ExchangeOwner> owner_;  // null: done or gone
    std::vector<std::string> queue_;
    std::function<void()> on_gone_;
    Framing framing_ = Framing::kLength;
    int status_ = 0;
    RequestNote note_;
    bool keep_alive_, begun_ = false, stream_ = false, complete_ = false, woken_ = false;
    const char* probe_ = nullptr;  // see Probe; null: such streams have nothing of the kind
    std::atomic<bool> gone_{false};
    std::atomic<size_t> backlog_bytes_{0};
    std::string holder_;     // whose counted_bytes_ are
    size_t counted_bytes_ = 0;
    size_t reserved_bytes_ = 0;
    uint64_t sent_bytes_ = 0;  // the I/O thread's
};

// The Exchange of a handler: answers for it when it is let go.
std::shared_ptr<Exchange> MakeExchange(std::shared_ptr<ExchangeState> state);

}  // namespace weft::serve

// Internal: state shared by an Exchange and its connection. Handlers answer on any thread; the I/O
// thread sends the output and reports a disconnect.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/server.h"

namespace weft::serve {

// The exchange's interface to its connection.
class ExchangeOwner {
  public:
    virtual ~ExchangeOwner() = default;
    // Output is ready to be sent. Any thread; returns at once.
    virtual void Wake() = 0;
    // Whether the connection accepts no further requests. Any thread.
    virtual bool closing() const = 0;
    // Hold counts `bytes` more for an answer toward the limits on memory
    // (HttpLimits::all_bodies_bytes, and half of it per client), or returns a refusal if a limit is
    // exceeded. own: bytes that this request already counts; a single request may exceed its
    // client's half. Add counts bytes without a check. Release ends the counting of bytes. Any
    // thread.
    virtual std::optional<Refusal> Hold(const std::string& client, size_t bytes, size_t own) = 0;
    virtual void Add(const std::string& client, size_t bytes) = 0;
    virtual void Release(const std::string& client, size_t bytes) = 0;
};

// Bytes to send: its own ones, or bytes that outlive the server.
struct Piece {
    std::string own{};
    std::string_view kept{};
    std::string_view bytes() const { return own.empty() ? kept : std::string_view(own); }
};

class ExchangeState {
  public:
    // extra: headers added to every answer (CORS).
    ExchangeState(HttpRequest request, bool keep_alive, Headers extra,
                  std::shared_ptr<ExchangeOwner> owner);

    // Called by handlers; see Exchange.
    void Send(int status, Headers headers, std::string body);
    void SendKept(int status, Headers headers, std::string_view body);
    void Begin(int status, Headers headers);
    void Write(std::string chunk);
    void End() { EndWith({}); }
    void EndWith(std::string last);
    void OnDisconnect(std::function<void()> callback);
    void OnSilence(std::function<std::string()> fill);
    std::optional<Refusal> Hold(size_t bytes);
    std::optional<Refusal> Reserve(size_t bytes, bool of_key);
    void Release();
    // Called when the handler's last reference to the Exchange is released.
    void Abandon();
    void Note(const std::function<void(RequestNote&)>& edit);
    bool gone() const { return gone_; }
    size_t backlog_bytes() const { return backlog_bytes_; }
    const HttpRequest& request() const { return request_; }

    // Called by the I/O thread.
    // TakeOutput appends pending bytes to `out`. Returns true if these bytes are the last of the
    // answer.
    bool TakeOutput(std::vector<Piece>& out);
    void Sent(size_t bytes);
    // Called when the socket is full. For a stream, counts the bytes that are not sent yet; the
    // count shrinks as the client reads. For an answer made by Send, the full size stays counted
    // until all of it is sent. An answer made by SendKept is not counted.
    void CountBacklog();
    // The client's name, from the note.
    std::string client() const;
    // The handler has finished the answer.
    bool complete() const;
    bool stream() const;
    bool keep_alive() const;
    int status() const;
    RequestNote note() const;
    uint64_t sent_bytes() const { return sent_bytes_; }
    // Sends bytes that clients ignore, to detect a lost peer: a comment in an event stream, white
    // space before the next JSON line. Returns false if the answer has not begun.
    bool Probe();
    // Whether the stream is filled when it is silent, and sends what fills it.
    bool fills() const { return fills_; }
    void Fill();
    // Done: called when everything is sent or nothing more can be sent. It releases the connection
    // and all counted bytes. Gone: called when the client has disconnected or was cut off. It does
    // the same, discards unsent output, and runs the OnDisconnect callback.
    void Done();
    void Gone();

  private:
    void BeginLocked(int status, const Headers& headers, Framing framing, uint64_t length_bytes);
    void QueueLocked(Piece piece);
    bool WriteLocked(std::string chunk);
    void WakeLocked();
    void CountLocked(size_t bytes);
    std::shared_ptr<ExchangeOwner> LeaveOwnerLocked();

    const HttpRequest request_;
    const Headers extra_;
    mutable std::mutex mutex_;
    std::shared_ptr<ExchangeOwner> owner_;  // null: done or disconnected
    std::vector<Piece> queue_;
    std::function<void()> on_gone_;
    std::function<std::string()> fill_;
    std::atomic<bool> fills_{false};
    Framing framing_ = Framing::kLength;
    int status_ = 0;
    RequestNote note_;
    bool keep_alive_, begun_ = false, stream_ = false, complete_ = false, woken_ = false;
    bool kept_ = false;            // made by SendKept
    const char* probe_ = nullptr;  // bytes that Probe sends; null: this kind of stream allows none
    std::atomic<bool> gone_{false};
    std::atomic<size_t> backlog_bytes_{0};
    std::string holder_;  // client charged for counted_bytes_
    size_t counted_bytes_ = 0;
    std::string reserver_;  // client charged for reserved_bytes_
    size_t reserved_bytes_ = 0;
    uint64_t sent_bytes_ = 0;  // used by the I/O thread only
};

// Makes the handler's Exchange. It answers with an error if released unanswered.
std::shared_ptr<Exchange> MakeExchange(std::shared_ptr<ExchangeState> state);

}  // namespace weft::serve

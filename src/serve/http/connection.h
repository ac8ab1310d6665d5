// Inside the server: one connection, from its first byte to its last. All of it runs on its loop's
// thread, but for what ExchangeOwner says.
//
// It waits for the socket to be readable at all times (but for a full pipeline): so it sees at once
// when a client leaves that waits for its answer. Bytes are read into the loop's own buffer and
// kept only as far as they are no whole request yet; an idle connection holds no buffer at all.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/core.h"
#include "serve/http/exchange.h"
#include "serve/http/parser.h"

namespace weft::serve {

class Connection final : public ExchangeOwner, public std::enable_shared_from_this<Connection> {
  public:
    using Tcp = boost::asio::ip::tcp;

    Connection(Core& core, Loop& loop, Tcp::socket socket, const Tcp::endpoint& peer);
    ~Connection() override;

    // Enters it into the loop's table. turned_away: one too many; it hears 503.
    void Begin(bool turned_away);
    // Drains: closed where it is between requests.
    void CloseIfIdle();
    void Close();
    // Serves the next request of a pipeline: see Loop::turns.
    void TakeTurn();

    void Wake() override;
    bool closing() const override { return core_.draining; }
    // Ends it where its client has not read for HttpLimits::slow_ms. For when memory is short.
    void EndIfSlow();
    // Since when the client reads too little; none: it reads, or has nothing to read.
    std::optional<int64_t> stalled_ns() const {
        return stalled_ns_ == kNever ? std::nullopt : std::optional(stalled_ns_);
    }
    std::optional<Refusal> Hold(const std::string& client, size_t bytes, size_t own) override;
    void Add(const std::string& client, size_t bytes) override;
    void LetGo(const std::string& client, size_t bytes) override;

  private:
    enum class Phase {
        kHandshake,  // TLS
        kIdle,       // between requests
        kHead,       // a request has begun to come
        kBody,
        kServing,   // its exchange is open
        kRefusing,  // the layer's own last answer is on its way
        kLinger,    // all is sent: until the client closes
        kClosed,
    };
    // kEnd: the client sends no more, but may still read.
    enum class Io { kDone, kAgain, kEnd, kBroken };

    // Reading.
    void WaitReadable();
    void ReadAgain();
    void OnReadable();
    bool Handshake();
    Io Receive(std::span<char> room, size_t& got);
    void Consume(std::string_view bytes);
    bool OnHead(std::string_view rest);
    std::optional<Refusal> RefusalOf(const HttpRequest& asked) const;
    bool TakeShare(size_t bytes);
    bool CountBody();
    void OnEnd();
    bool reading_requests() const {
        return phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody;
    }

    // Serving.
    void Serve();
    void Refuse(const Refusal& refusal);
    void RefusePlainHttp();
    void FinishExchange();
    void WaitForTurn();
    void GoOn();
    void StartLinger();
    void ReleaseBody();
    void Record(const ExchangeState& exchange, bool gone) const;
    void Observe(const HttpRequest& request, HttpRecord record) const;
    void ProbePeer();
    std::string PeerText() const;

    // Writing.
    void WaitWritable();
    void Flush();
    Io Transmit(size_t& sent);
    Io TransmitPlain(size_t& sent);
    Io TransmitTls(size_t& sent);
    void Drop(size_t bytes);
    bool all_sent() const { return out_at_ == out_.size() && staged_.empty(); }
    void NoteProgress(size_t sent);
    void OnStalled();
    void CutOff();

    // Time.
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    int64_t PhaseDeadlineNs() const;
    int64_t NextDeadlineNs() const;
    void Arm();
    void OnTimer();
    void OnPhaseDeadline();
    bool PeerHasLeft();
    int64_t QueuedBytes();
    bool PeerReads();
    bool LooksForPeer() const { return paused_ || (ended_ && phase_ == Phase::kServing); }

    Core& core_;
    Loop& loop_;
    const HttpLimits& limits_;
    Tcp::socket socket_;
    boost::asio::steady_timer timer_;
    const Tcp::endpoint peer_;
    std::unique_ptr<TlsStream> tls_;
    std::unique_ptr<RequestParser> parser_;    // while a request comes
    std::shared_ptr<ExchangeState> exchange_;  // while one is answered
    std::string input_;                        // came, not taken yet
    std::vector<std::string> out_;             // to be sent, from out_[out_at_][out_offset_] on
    size_t out_at_ = 0, out_offset_ = 0;
    std::string staged_;  // TLS: gathered, and given to OpenSSL from staged_at_ on
    size_t staged_at_ = 0;

    Phase phase_ = Phase::kIdle;
    bool reading_ = false;         // a wait for (or a turn of) reading is pending
    bool writing_ = false;         // a wait for writing is
    bool paused_ = false;          // the pipeline is full
    bool in_turns_ = false;        // it waits in Loop::turns; input_ has what came
    bool ended_ = false;           // the client sends no more
    int64_t phase_ns_ = 0;         // when the phase began
    int64_t began_ns_ = 0;         // when the first byte of the request came
    int64_t stalled_ns_ = kNever;  // since when the socket takes too little
    size_t progress_bytes_ = 0;    // since then
    int64_t queued_bytes_ = 0;     // in the socket then
    int64_t looked_ns_ = 0;        // when the client was last looked for
    int64_t armed_ns_ = kNever;    // when the timer fires
    size_t body_bytes_ = 0;        // counted into all_bodies_bytes
    std::string client_;           // whose share of them it is; "": nobody's
    size_t share_bytes_ = 0;       // counted for client_: the whole body, where its size is known
    int64_t mark_ns_ = 0;          // since when the body has to bring more than it had then
    size_t mark_bytes_ = 0;
};

}  // namespace weft::serve

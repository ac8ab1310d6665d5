// Internal: one connection, from accept to close. All methods except those of ExchangeOwner run on
// the thread of the connection's Loop.
//
// The connection always waits for the socket to be readable, so it notices a disconnect while the
// answer is being made. (It does not wait while too many bytes of pipelined requests have arrived.)
// It reads into the loop's buffer and keeps only the bytes of unfinished requests, so an idle
// connection holds no buffer.
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

    // Adds the connection to the loop's table.
    void Begin();
    // Closes connections of the loop that exceed its seats (seats.h). joined: the connection that
    // was added last, or null.
    static void MakeSpace(Loop& loop, const Connection* joined);
    // Closes one connection that is not busy; false: there is none.
    static bool DisplaceOne(Loop& loop);
    // Called when the server drains: closes the connection if no request is being received or
    // answered.
    void CloseIfIdle();
    void Close();
    // Serves the next pipelined request; see Loop::turns.
    void TakeTurn();

    void Wake() override;
    bool closing() const override { return core_.keep_alive_over; }
    // Called when too many bytes are held: closes the connection if the client has not read for
    // HttpLimits::slow_ms.
    void EndIfSlow();
    // Time since which the client reads too slowly; nullopt: the client keeps up or has nothing to
    // read.
    std::optional<int64_t> stalled_ns() const {
        return stalled_ns_ == kNever ? std::nullopt : std::optional(stalled_ns_);
    }
    std::optional<Refusal> Hold(const std::string& client, size_t bytes, size_t own) override;
    void Add(const std::string& client, size_t bytes) override;
    void Release(const std::string& client, size_t bytes) override;

  private:
    enum class Phase {
        kHandshake,  // TLS
        kIdle,       // between requests
        kHead,       // part of a head has arrived
        kBody,
        kServing,   // the handler makes the answer, or it is being sent
        kRefusing,  // an error response made by this layer is being sent
        kLinger,    // everything is sent; waits for the client to close
        kClosed,
    };
    // kEnd: the client shut down its sending side, but may still read.
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
    void TakeSeat(Seat seat);
    bool HasKey() const;
    bool GiveSeat();
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
    void Reset();

    // Time.
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    int64_t PhaseDeadlineNs() const;
    int64_t NextDeadlineNs() const;
    void Arm();
    void OnTimer();
    void OnPhaseDeadline();
    bool PeerHasLeft();
    bool EndedUnanswered() const;
    int64_t QueuedBytes();
    bool PeerReads();
    bool FillsSilence() const {
        return phase_ == Phase::kServing && all_sent() && exchange_->fills();
    }
    bool LooksForPeer() const { return paused_ || (ended_ && phase_ == Phase::kServing); }

    Core& core_;
    Loop& loop_;
    const HttpLimits& limits_;
    Tcp::socket socket_;
    boost::asio::steady_timer timer_;
    const Tcp::endpoint peer_;
    std::unique_ptr<TlsStream> tls_;
    std::unique_ptr<RequestParser> parser_;    // while a request arrives
    std::shared_ptr<ExchangeState> exchange_;  // while a request is answered
    std::string input_;                        // received, not yet parsed
    std::vector<Piece> out_;                   // to send, starting at out_[out_at_][out_offset_]
    size_t out_at_ = 0, out_offset_ = 0;
    // TLS: bytes gathered for OpenSSL; staged_at_ is the first byte not yet written.
    std::string staged_;
    size_t staged_at_ = 0;

    Phase phase_ = Phase::kIdle;
    bool reading_ = false;         // a wait for reading, or a turn of it, is pending
    bool writing_ = false;         // a wait for writing is pending
    bool paused_ = false;          // the pipeline is full
    bool in_turns_ = false;        // it is in Loop::turns; input_ holds its next requests
    bool ended_ = false;           // the client shut down its sending side
    int64_t phase_ns_ = 0;         // when the phase began
    int64_t began_ns_ = 0;         // arrival of the request's first byte
    int64_t stalled_ns_ = kNever;  // time since which the socket accepts too little
    size_t progress_bytes_ = 0;    // bytes accepted since then
    int64_t queued_bytes_ = 0;     // bytes in the socket's send queue at that time
    int64_t sent_ns_ = 0;          // time of the last bytes of the answer
    int64_t looked_ns_ = 0;        // time of the last check for the client
    int64_t ended_ns_ = 0;         // when the client shut down its sending side
    int64_t armed_ns_ = kNever;    // expiry of the timer
    size_t body_bytes_ = 0;        // counted in all_bodies_bytes
    std::string client_;           // client charged for the body; "": nobody
    size_t share_bytes_ = 0;       // bytes charged to client_: the whole body if its size is known
    // Start of the current interval of body_grace_ms (HttpLimits), and the body bytes received
    // until then.
    int64_t mark_ns_ = 0;
    size_t mark_bytes_ = 0;
};

}  // namespace weft::serve

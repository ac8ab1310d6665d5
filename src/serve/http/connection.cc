#include "serve/http/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "net/addresses.h"
#include "serve/http/cors.h"

namespace weft::serve {
namespace {

using BoostError = boost::system::error_code;

constexpr int64_t kMs = 1'000'000;
constexpr int kTurns = 4;  // reads before other connections get their turn
constexpr int64_t kLookForPeerNs = 200 * kMs;
constexpr int64_t kHttp10LeavesNs = 500 * kMs;
constexpr int64_t kTellDisplacedNs = 60'000 * kMs;  // between two lines of the log

// Also frees the memory, which assigning an empty container would keep.
template <typename Container>
void Free(Container& container) {
    Container().swap(container);
}

Headers HeadersOf(const Refusal& refusal, const HttpOptions& options) {
    Headers headers = {{"Content-Type", "application/json"}};
    headers.insert(headers.end(), refusal.headers.begin(), refusal.headers.end());
    const bool says_when = std::ranges::any_of(
        refusal.headers, [](const auto& header) { return header.first == "Retry-After"; });
    if (refusal.status == 503 && !says_when) {
        headers.emplace_back("Retry-After", std::to_string(options.retry_after_s));
    }
    return headers;
}

std::string TooMuchOfKey(size_t held, const HttpLimits& limits) {
    return fmt::format(
        "requests and unread answers of this key hold {} bytes; the limit is {} (half of "
        "--max-bodies-size). Read the answers, or try again later",
        held, limits.all_bodies_bytes / 2);
}

std::string TooMuch(uint64_t held, const HttpLimits& limits) {
    return fmt::format(
        "requests and unread answers hold {} bytes; the limit is {} (--max-bodies-size). Try again "
        "later",
        held, limits.all_bodies_bytes);
}

// Headers added to every answer to `request`.
Headers ExtraHeaders(const HttpRequest& request, const HttpOptions& options) {
    Headers headers = CorsHeaders(request, options.allow_origins);
    for (const auto& [path, name] : options.id_headers) {
        if (request.path.starts_with(path)) headers.emplace_back(name, request.id);
    }
    return headers;
}

// Serves one pipelined request, then polls the sockets before the next one.
void PostTurn(Loop& loop) {
    boost::asio::post(loop.context, [&loop] {
        const std::shared_ptr<Connection> connection = std::move(loop.turns.front());
        loop.turns.pop_front();
        if (!loop.turns.empty()) PostTurn(loop);
        connection->TakeTurn();
    });
}

}  // namespace

Connection::Connection(Core& core, Loop& loop, Tcp::socket socket, const Tcp::endpoint& peer)
    : core_(core),
      loop_(loop),
      limits_(core.options.limits),
      socket_(std::move(socket)),
      timer_(loop.context),
      peer_(peer) {
    ++core_.counters.connections;
}

Connection::~Connection() {
    --core_.counters.connections;
}

void Connection::Begin() {
    loop_.connections.emplace(this, shared_from_this());
    phase_ns_ = NowNs();
    if (core_.stopping) return Close();
    loop_.seats.Add(this, net::NetworkOf(PeerText()));
    const std::shared_ptr<const TlsContext> tls = core_.tls();
    if (tls != nullptr) {
        tls_ = std::make_unique<TlsStream>(*tls, socket_.native_handle());
        phase_ = Phase::kHandshake;
    }
    WaitReadable();
    Arm();
    MakeSpace(loop_, this);
}

void Connection::MakeSpace(Loop& loop, const Connection* joined) {
    while (Connection* excess = loop.seats.Excess(joined)) excess->GiveSeat();
}

bool Connection::DisplaceOne(Loop& loop) {
    while (Connection* oldest = loop.seats.Oldest()) {
        if (oldest->GiveSeat()) return true;
    }
    return false;
}

// Takes a seat of this kind; if all are taken, other connections are closed.
void Connection::TakeSeat(Seat seat) {
    if (phase_ == Phase::kClosed) return;
    loop_.seats.Move(this, seat);
    if (seat == Seat::kBusy) MakeSpace(loop_, nullptr);
}

// Whether the request that arrives or is answered has a key.
bool Connection::HasKey() const {
    if (exchange_ == nullptr) return !client_.empty();
    return !exchange_->client().empty() ||
           (core_.options.keyless && exchange_->request().method == "POST");
}

// Closes the connection. Returns false if another thread has found a key in its request, so that it
// is busy.
bool Connection::GiveSeat() {
    if (exchange_ != nullptr && HasKey()) {
        loop_.seats.Move(this, Seat::kBusy);
        return false;
    }
    const int64_t now_ns = NowNs();
    const uint64_t before = core_.counters.displaced++;
    if (before == 0 || now_ns - core_.told_displaced_ns > kTellDisplacedNs) {
        core_.told_displaced_ns = now_ns;
        Log(LogLevel::kWarning,
            "closed a connection of {} to make room: it was the oldest without an API key of the "
            "address with the most ({} closed before it; --max-strangers, --max-connections)",
            PeerText(), before);
    }
    if (exchange_ != nullptr) {
        exchange_->Note([](RequestNote& note) {
            note.error = "closed to make room for other connections (--max-strangers)";
        });
    }
    const bool sends = phase_ == Phase::kServing || phase_ == Phase::kRefusing;
    sends ? Reset() : Close();
    return true;
}

void Connection::CloseIfIdle() {
    if (phase_ == Phase::kIdle && !in_turns_) Close();
}

void Connection::Close() {
    if (phase_ == Phase::kClosed) return;
    const auto self = shared_from_this();
    phase_ = Phase::kClosed;
    loop_.seats.Remove(this);
    BoostError ignored;
    timer_.cancel(ignored);
    tls_.reset();
    socket_.close(ignored);
    ReleaseBody();
    parser_.reset();
    Free(input_);
    Free(out_);
    Free(staged_);
    loop_.connections.erase(this);
    if (const auto exchange = std::exchange(exchange_, nullptr)) {
        --core_.open_exchanges;
        ++core_.counters.client_gone;
        Record(*exchange, true);
        exchange->Gone();
    }
}

// ---------------------------------------------------------------------------------------- reading

void Connection::WaitReadable() {
    if (reading_ || ended_ || phase_ == Phase::kClosed) return;
    reading_ = true;
    socket_.async_wait(Tcp::socket::wait_read, [self = shared_from_this()](const BoostError& ec) {
        self->reading_ = false;
        if (!ec) self->OnReadable();
    });
}

void Connection::ReadAgain() {
    if (reading_ || ended_ || phase_ == Phase::kClosed) return;
    reading_ = true;
    boost::asio::post(loop_.context, [self = shared_from_this()] {
        self->reading_ = false;
        self->OnReadable();
    });
}

bool Connection::Handshake() {
    switch (tls_->Handshake()) {
        case TlsStep::kDone:
            phase_ = Phase::kIdle;
            phase_ns_ = NowNs();
            Arm();
            return true;
        case TlsStep::kWantRead: WaitReadable(); return false;
        case TlsStep::kWantWrite: WaitWritable(); return false;
        case TlsStep::kPlainHttp: RefusePlainHttp(); return false;
        case TlsStep::kClosed:
        case TlsStep::kFailed: break;
    }
    ++core_.counters.tls_failed;
    Close();
    return false;
}

Connection::Io Connection::Receive(std::span<char> room, size_t& got) {
    if (tls_ != nullptr) {
        switch (tls_->Read(room, got)) {
            case TlsStep::kDone: return Io::kDone;
            case TlsStep::kWantRead: return Io::kAgain;
            case TlsStep::kWantWrite: WaitWritable(); return Io::kAgain;
            case TlsStep::kClosed:
            case TlsStep::kPlainHttp:
            case TlsStep::kFailed: return Io::kBroken;
        }
    }
    const ssize_t returned =
        ::recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT);
    if (returned > 0) {
        got = static_cast<size_t>(returned);
        return Io::kDone;
    }
    if (returned < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return Io::kAgain;
    }
    return returned == 0 ? Io::kEnd : Io::kBroken;
}

void Connection::OnReadable() {
    if (ended_ || phase_ == Phase::kClosed) return;
    if (phase_ == Phase::kHandshake && !Handshake()) return;
    for (int turn = 0; turn < kTurns; ++turn) {
        std::span<char> room(loop_.scratch);
        const bool keeps = exchange_ != nullptr || in_turns_;
        if (keeps) {
            if (input_.size() >= limits_.head_bytes) {
                paused_ = true;
                looked_ns_ = NowNs();
                return Arm();
            }
            room = room.first(std::min(room.size(), limits_.head_bytes - input_.size()));
        }
        size_t got = 0;
        const Io io = Receive(room, got);
        if (io == Io::kAgain) return WaitReadable();
        if (io == Io::kBroken && (phase_ == Phase::kServing || in_turns_)) return Close();
        if (io == Io::kEnd || io == Io::kBroken) return OnEnd();
        core_.counters.received_bytes += got;
        if (keeps) {
            input_.append(room.data(), got);
        } else if (reading_requests()) {
            Consume({room.data(), got});
        }
        if (phase_ == Phase::kClosed) return;
        if (tls_ == nullptr && got < room.size()) return WaitReadable();
    }
    ReadAgain();
}

void Connection::Consume(std::string_view bytes) {
    std::string kept;
    if (!input_.empty()) {
        input_.append(bytes);
        kept.swap(input_);
        bytes = kept;
    }
    bool more = true;
    while (more && !bytes.empty() && reading_requests()) {
        if (parser_ == nullptr) {
            // (A body above the limit for all bodies together could never be accepted.)
            const uint64_t most = std::min(limits_.body_bytes, limits_.all_bodies_bytes);
            parser_ = std::make_unique<RequestParser>(
                ParserLimits{limits_.head_bytes, limits_.headers, most});
            phase_ = Phase::kHead;
            phase_ns_ = began_ns_ = NowNs();
        }
        const RequestParser::Step step = parser_->Feed(bytes);
        if (!CountBody()) break;
        switch (step) {
            case RequestParser::Step::kMore: more = false; break;
            case RequestParser::Step::kHead: more = OnHead(bytes); break;
            case RequestParser::Step::kDone: Serve(); break;
            case RequestParser::Step::kRefused: Refuse(parser_->refusal()); break;
        }
    }
    if (!reading_requests() && phase_ != Phase::kServing) return;
    if (bytes.empty()) {
        Free(input_);
    } else if (kept.empty()) {
        input_.assign(bytes);
    } else {
        kept.erase(0, kept.size() - bytes.size());
        input_.swap(kept);
    }
    Arm();
}

// Judges a request by its head and refuses it before its body is read. Exception: if the whole body
// of a POST arrived with the head, the request is served normally and the connection can be kept.
// (The handler reads no body of other methods; those are always judged, because TCP may split them
// anywhere.) False: stop reading.
bool Connection::OnHead(std::string_view rest) {
    phase_ = Phase::kBody;
    phase_ns_ = mark_ns_ = NowNs();
    mark_bytes_ = 0;
    client_.clear();
    const uint64_t length = parser_->content_length();
    const bool unusual = parser_->request().method != "POST";
    if (length == 0 || rest.size() < length || unusual) {
        std::optional<Refusal> refusal = RefusalOf(parser_->request());
        if (!refusal && core_.options.judge_head) {
            HeadVerdict verdict = core_.options.judge_head(parser_->request());
            refusal = std::move(verdict.refusal);
            client_ = std::move(verdict.client);
        }
        if (refusal) return Refuse(*refusal), false;
        if (!TakeShare(length)) return false;
        if (!client_.empty()) TakeSeat(Seat::kBusy);
    }
    if (parser_->expects_continue() && rest.empty()) {
        out_.push_back({"HTTP/1.1 100 Continue\r\n\r\n"});
        Flush();
    }
    return phase_ == Phase::kBody;
}

// Charges the client before the bytes arrive, so that a refusal is sent early.
bool Connection::TakeShare(size_t bytes) {
    if (client_.empty()) return true;
    if (core_.shares.Take(client_, bytes, share_bytes_, limits_.all_bodies_bytes / 2)) {
        share_bytes_ += bytes;
        return true;
    }
    Refuse({429, TooMuchOfKey(core_.shares.held(client_), limits_), "too_many_large_requests"});
    return false;
}

bool Connection::CountBody() {
    const size_t bytes = parser_->body_bytes();
    if (bytes <= body_bytes_) return true;
    const size_t more = bytes - body_bytes_;
    const size_t wanted =
        std::max(static_cast<size_t>(limits_.body_bytes_per_s * limits_.body_grace_ms / 1000),
                 mark_bytes_ / 16);
    if (bytes - mark_bytes_ >= wanted) {
        mark_bytes_ = bytes;
        mark_ns_ = NowNs();
    }
    if (bytes > share_bytes_ && !TakeShare(bytes - share_bytes_)) return false;
    body_bytes_ = bytes;
    if (core_.counters.body_bytes.fetch_add(more) + more <= limits_.all_bodies_bytes) return true;
    core_.shed();
    Refuse({503, TooMuch(core_.counters.body_bytes, limits_), "too_many_large_requests"});
    return false;
}

std::optional<Refusal> Connection::Hold(const std::string& client, size_t bytes, size_t own) {
    const uint64_t most = limits_.all_bodies_bytes;
    if (!client.empty() && !core_.shares.Take(client, bytes, own, most / 2)) {
        return Refusal{429, TooMuchOfKey(core_.shares.held(client), limits_),
                       "too_many_large_requests"};
    }
    // A single request may exceed the limit.
    const uint64_t before = core_.counters.body_bytes.fetch_add(bytes);
    if (before <= own || before + bytes <= most) return {};
    Release(client, bytes);
    core_.shed();
    return Refusal{503, TooMuch(before, limits_), "too_many_large_requests"};
}

void Connection::Add(const std::string& client, size_t bytes) {
    if (!client.empty()) core_.shares.Add(client, bytes);
    core_.counters.body_bytes += bytes;
}

void Connection::Release(const std::string& client, size_t bytes) {
    if (!client.empty()) core_.shares.Give(client, bytes);
    core_.counters.body_bytes -= bytes;
}

void Connection::ReleaseBody() {
    if (!client_.empty()) core_.shares.Give(client_, std::exchange(share_bytes_, 0));
    core_.counters.body_bytes -= std::exchange(body_bytes_, 0);
}

// The client shut down its sending side, or disconnected.
void Connection::OnEnd() {
    switch (phase_) {
        case Phase::kHead:
        case Phase::kBody:
            ended_ = true;
            return Refuse({400, "the connection ended within the request", ""});
        case Phase::kServing:
            ended_ = true;
            if (exchange_->complete()) return Wake();
            looked_ns_ = ended_ns_ = NowNs();
            ProbePeer();
            return Arm();
        case Phase::kRefusing: ended_ = true; return;
        case Phase::kHandshake: ++core_.counters.tls_failed; return Close();
        case Phase::kIdle: ended_ = true; return in_turns_ ? void() : Close();
        case Phase::kLinger: return Close();
        case Phase::kClosed: return;
    }
}

// Detects a closed client. It looks like a client that only shut down its sending side until it
// receives data; then its kernel resets the connection. Before the answer begins, an interim
// response is sent, which every HTTP/1.1 client ignores (RFC 9110, 15.2).
void Connection::ProbePeer() {
    if (exchange_->Probe() || !exchange_->request().http11 || !all_sent()) return;
    out_.push_back({"HTTP/1.1 100 Continue\r\n\r\n"});
    Flush();
}

// ---------------------------------------------------------------------------------------- serving

std::string Connection::PeerText() const {
    boost::asio::ip::address address = peer_.address();
    if (address.is_v6() && address.to_v6().is_v4_mapped()) {
        address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
    }
    return fmt::format(fmt::runtime(address.is_v6() ? "[{}]:{}" : "{}:{}"), address.to_string(),
                       peer_.port());
}

// Refusals by the layer itself, based on a request's head.
std::optional<Refusal> Connection::RefusalOf(const HttpRequest& asked) const {
    const HttpOptions& options = core_.options;
    if (!IsAllowedHost(asked, options.allowed_hosts)) {
        return Refusal{421, "the Host header is not a name of this server", "wrong_host"};
    }
    const std::string_view coding = asked.Header("Content-Encoding");
    if (asked.method == "POST" && !coding.empty() && !SameName(coding, "identity")) {
        return Refusal{415,
                       "the body has a Content-Encoding; this server expects plain JSON. Send it "
                       "without compression and without this header",
                       "unsupported_media_type"};
    }
    const bool probe =
        std::ranges::find(options.drain_paths, asked.path) != options.drain_paths.end();
    const bool drains = core_.draining && asked.method != "OPTIONS" && !probe;
    if (loop_.seats.full() && !probe && loop_.seats.SeatOf(this) != Seat::kBusy) {
        ++core_.counters.turned_away;
        return Refusal{503, "the server has reached its connection limit; try again later",
                       "too_many_connections"};
    }
    if (!drains) return RefusePage(asked, options.allow_origins);
    return Refusal{503, "the server is shutting down; try another server, or try again later",
                   "draining"};
}

void Connection::Serve() {
    const bool keep_alive = parser_->keep_alive();
    HttpRequest request = parser_->Take();
    request.peer = PeerText();
    if (const auto first = request.Header("X-Forwarded-For");
        core_.options.behind_front && !first.empty()) {
        request.peer = first;
    }
    parser_.reset();
    phase_ = Phase::kServing;
    phase_ns_ = NowNs();
    if (ended_) looked_ns_ = ended_ns_ = phase_ns_;  // a pipelined request, whose turn it is now
    ++core_.open_exchanges;
    const HttpOptions& options = core_.options;
    Headers extra = ExtraHeaders(request, options);
    exchange_ = std::make_shared<ExchangeState>(std::move(request), keep_alive, std::move(extra),
                                                shared_from_this());
    const HttpRequest& asked = exchange_->request();
    if (const auto refusal = RefusalOf(asked)) {
        ++core_.counters.refused;
        exchange_->Note([&](RequestNote& note) { note.error = refusal->message; });
        return exchange_->Send(refusal->status, HeadersOf(*refusal, options),
                               ErrorBody(refusal->status, refusal->message, {}, refusal->code));
    }
    if (asked.method == "OPTIONS") {
        return exchange_->Send(204, OptionsHeaders(asked, options.allow_origins), {});
    }
    ++core_.counters.requests;
    const auto state = exchange_;  // keeps it alive during the handler
    try {
        core_.handler(MakeExchange(state));
    } catch (const std::exception& error) {
        Log(LogLevel::kError, "{} {} ({}): the handler failed: {}", asked.method, asked.path,
            asked.id, error.what());
        state->Abandon();
    }
    if (exchange_ != nullptr && HasKey()) TakeSeat(Seat::kBusy);
}

void Connection::Refuse(const Refusal& refusal) {
    HttpRequest request;
    if (parser_ != nullptr) request = parser_->Take();
    if (request.id.empty()) request.id = MakeRequestId();
    if (began_ns_ == 0) began_ns_ = NowNs();
    Headers headers = HeadersOf(refusal, core_.options);
    const Headers extra = ExtraHeaders(request, core_.options);
    headers.insert(headers.end(), extra.begin(), extra.end());
    const std::string body = refusal.body.empty()
                                 ? ErrorBody(refusal.status, refusal.message, {}, refusal.code)
                                 : refusal.body;
    std::string answer = FormatHead({.status = refusal.status,
                                     .length_bytes = body.size(),
                                     .keep_alive = false,
                                     .request_id = request.id},
                                    headers);
    if (request.method != "HEAD") answer += body;
    ++core_.counters.refused;
    HttpRecord record{.status = refusal.status, .sent_bytes = answer.size(), .refused = true};
    out_.push_back({std::move(answer)});
    record.note.error = refusal.message;
    Observe(request, std::move(record));
    ReleaseBody();
    parser_.reset();
    TakeSeat(Seat::kStranger);
    phase_ = Phase::kRefusing;
    phase_ns_ = NowNs();
    Flush();
    Arm();
}

// OpenSSL has consumed the bytes; it recognized plain HTTP by the first ones.
void Connection::RefusePlainHttp() {
    tls_.reset();
    ++core_.counters.tls_failed;
    Refuse({400, "this port serves HTTPS; use https:// instead of http://", "https_only"});
    if (phase_ != Phase::kClosed) WaitReadable();
}

void Connection::Record(const ExchangeState& exchange, bool gone) const {
    Observe(exchange.request(), {.status = exchange.status(),
                                 .sent_bytes = exchange.sent_bytes(),
                                 .gone = gone,
                                 .note = exchange.note()});
}

// Fills in the fields of `record` that come from the request and the connection.
void Connection::Observe(const HttpRequest& request, HttpRecord record) const {
    if (!core_.options.observer) return;
    record.id = request.id;
    record.peer = request.peer.empty() ? PeerText() : request.peer;
    record.method = request.method;
    record.path = request.path;
    record.seconds = static_cast<double>(NowNs() - began_ns_) * 1e-9;
    core_.options.observer(record);
}

void Connection::FinishExchange() {
    const Seat seat = HasKey() ? Seat::kIdle : Seat::kStranger;
    const auto exchange = std::exchange(exchange_, nullptr);
    // Requests received before the client's shutdown are still answered.
    const bool more = !ended_ || !input_.empty();
    // (A connection whose answer did not say "close" accepts one more request, although
    // EndKeepAlive() was called meanwhile: the client may have sent that request.)
    const bool keep_alive = exchange->keep_alive() && more && !core_.draining;
    --core_.open_exchanges;
    ReleaseBody();
    Record(*exchange, false);
    exchange->Done();
    if (!keep_alive) return StartLinger();
    TakeSeat(seat);
    phase_ = Phase::kIdle;
    phase_ns_ = NowNs();
    Free(out_);
    Free(staged_);
    if (!input_.empty()) return WaitForTurn();
    Free(input_);
    GoOn();
}

void Connection::WaitForTurn() {
    in_turns_ = true;
    loop_.turns.push_back(shared_from_this());
    if (loop_.turns.size() == 1) PostTurn(loop_);
}

void Connection::TakeTurn() {
    in_turns_ = false;
    if (phase_ == Phase::kClosed) return;
    Consume({});
    GoOn();
}

// Goes on reading requests after an answer, or ends if the client has shut down its sending side.
void Connection::GoOn() {
    if (phase_ == Phase::kClosed) return;
    if (ended_ && reading_requests()) return phase_ == Phase::kIdle ? Close() : OnEnd();
    if (std::exchange(paused_, false)) ReadAgain();
    Arm();
}

void Connection::StartLinger() {
    if (ended_) return Close();
    TakeSeat(Seat::kStranger);
    phase_ = Phase::kLinger;
    phase_ns_ = NowNs();
    Free(out_);
    Free(staged_);
    Free(input_);
    paused_ = false;
    if (tls_ != nullptr) tls_->Shutdown();
    ::shutdown(socket_.native_handle(), SHUT_WR);
    ReadAgain();
    Arm();
}

// ------------------------------------------------------------------------------------------- time

int64_t Connection::PhaseDeadlineNs() const {
    switch (phase_) {
        case Phase::kHandshake:
        case Phase::kHead: return phase_ns_ + limits_.head_ms * kMs;
        case Phase::kIdle: return in_turns_ ? kNever : phase_ns_ + limits_.idle_ms * kMs;
        case Phase::kBody: {
            return std::min(phase_ns_ + limits_.body_ms * kMs,
                            mark_ns_ + limits_.body_grace_ms * kMs);
        }
        case Phase::kRefusing:
        case Phase::kLinger: return phase_ns_ + limits_.linger_ms * kMs;
        case Phase::kServing:
        case Phase::kClosed: break;
    }
    return kNever;
}

int64_t Connection::NextDeadlineNs() const {
    int64_t next = PhaseDeadlineNs();
    if (stalled_ns_ != kNever) next = std::min(next, stalled_ns_ + limits_.stall_ms * kMs);
    if (LooksForPeer()) next = std::min(next, looked_ns_ + kLookForPeerNs);
    if (FillsSilence()) next = std::min(next, sent_ns_ + limits_.silence_ms * kMs);
    return next;
}

// If the deadline moves later, the timer stays; its handler re-checks when it fires.
void Connection::Arm() {
    if (phase_ == Phase::kClosed) return;
    const int64_t next = NextDeadlineNs();
    if (next >= armed_ns_) return;
    armed_ns_ = next;
    timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next)));
    timer_.async_wait([self = shared_from_this()](const BoostError& ec) {
        if (!ec) self->OnTimer();
    });
}

void Connection::OnTimer() {
    armed_ns_ = kNever;
    if (phase_ == Phase::kClosed) return;
    const int64_t now_ns = NowNs();
    if (stalled_ns_ != kNever && now_ns >= stalled_ns_ + limits_.stall_ms * kMs) {
        if (!PeerReads()) return CutOff();
        stalled_ns_ = now_ns;
    }
    if (now_ns >= PhaseDeadlineNs()) {
        OnPhaseDeadline();
    } else if (LooksForPeer() && now_ns >= looked_ns_ + kLookForPeerNs) {
        if (PeerHasLeft() || EndedUnanswered()) return Close();
        looked_ns_ = now_ns;
    } else if (FillsSilence() && now_ns >= sent_ns_ + limits_.silence_ms * kMs) {
        sent_ns_ = now_ns;
        exchange_->Fill();
    }
    Arm();
}

void Connection::OnPhaseDeadline() {
    switch (phase_) {
        case Phase::kHandshake:
            ++core_.counters.timed_out;
            ++core_.counters.tls_failed;
            return Close();
        case Phase::kHead:
            ++core_.counters.timed_out;
            return Refuse(
                {408,
                 fmt::format("the request's head was not complete within {} ms", limits_.head_ms),
                 "request_timeout"});
        case Phase::kBody:
            ++core_.counters.timed_out;
            return Refuse({408,
                           fmt::format("the request's body arrived too slowly: {} bytes in {} ms",
                                       parser_->body_bytes(), (NowNs() - phase_ns_) / kMs),
                           "request_timeout"});
        case Phase::kIdle:
        case Phase::kRefusing:
        case Phase::kLinger: return Close();
        case Phase::kServing:
        case Phase::kClosed: return;
    }
}

// No interim response can find out whether a client of HTTP/1.0 has left. If its answer does not
// begin soon after the end of its input, it counts as disconnected.
bool Connection::EndedUnanswered() const {
    return ended_ && !exchange_->request().http11 && exchange_->status() == 0 &&
           NowNs() - ended_ns_ >= kHttp10LeavesNs;
}

// Checks while nothing is read: the pipeline is full, or the client shut down its side.
bool Connection::PeerHasLeft() {
    pollfd entry{socket_.native_handle(), 0, 0};
    return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace weft::serve

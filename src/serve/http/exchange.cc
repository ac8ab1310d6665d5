#include "serve/http/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::serve {
namespace {

// Longer bodies are sent without being copied behind the head.
constexpr size_t kCopiedBytes = 16 << 10;

bool HasNoBody(int status) {
    return status < 200 || status == 204 || status == 304;
}

class Handle final : public Exchange {
  public:
    explicit Handle(std::shared_ptr<ExchangeState> state) : state_(std::move(state)) {}
    ~Handle() override { state_->Abandon(); }

    const HttpRequest& request() const override { return state_->request(); }
    void Send(int status, Headers headers, std::string body) override {
        state_->Send(status, std::move(headers), std::move(body));
    }
    void SendKept(int status, Headers headers, std::string_view body) override {
        state_->SendKept(status, std::move(headers), body);
    }
    void Begin(int status, Headers headers) override { state_->Begin(status, std::move(headers)); }
    void Write(std::string chunk) override { state_->Write(std::move(chunk)); }
    void End() override { state_->End(); }
    void EndWith(std::string last) override { state_->EndWith(std::move(last)); }
    bool gone() const override { return state_->gone(); }
    void OnDisconnect(std::function<void()> callback) override {
        state_->OnDisconnect(std::move(callback));
    }
    void OnSilence(std::function<std::string()> fill) override {
        state_->OnSilence(std::move(fill));
    }
    size_t backlog_bytes() const override { return state_->backlog_bytes(); }
    std::optional<Refusal> Hold(size_t bytes) override { return state_->Hold(bytes); }
    std::optional<Refusal> Reserve(size_t bytes, bool of_key) override {
        return state_->Reserve(bytes, of_key);
    }
    void Release() override { state_->Release(); }
    void Note(const std::function<void(RequestNote&)>& edit) override { state_->Note(edit); }

  private:
    std::shared_ptr<ExchangeState> state_;
};

}  // namespace

std::shared_ptr<Exchange> MakeExchange(std::shared_ptr<ExchangeState> state) {
    return std::make_shared<Handle>(std::move(state));
}

ExchangeState::ExchangeState(HttpRequest request, bool keep_alive, Headers extra,
                             std::shared_ptr<ExchangeOwner> owner)
    : request_(std::move(request)),
      extra_(std::move(extra)),
      owner_(std::move(owner)),
      keep_alive_(keep_alive) {}

void ExchangeState::WakeLocked() {
    if (std::exchange(woken_, true)) return;
    owner_->Wake();
}

void ExchangeState::QueueLocked(Piece piece) {
    if (piece.bytes().empty()) return;
    backlog_bytes_ += piece.bytes().size();
    queue_.push_back(std::move(piece));
}

void ExchangeState::BeginLocked(int status, const Headers& headers, Framing framing,
                                uint64_t length_bytes) {
    begun_ = true;
    status_ = status;
    if (HasNoBody(status)) framing = Framing::kNone;
    if (framing == Framing::kUntilClose || owner_->closing()) keep_alive_ = false;
    framing_ = framing;
    Headers all = headers;
    all.insert(all.end(), extra_.begin(), extra_.end());
    QueueLocked({FormatHead({.status = status,
                             .framing = framing,
                             .length_bytes = length_bytes,
                             .http11 = request_.http11,
                             .keep_alive = keep_alive_,
                             .request_id = request_.id},
                            all)});
    if (request_.method == "HEAD") framing_ = Framing::kNone;
}

void ExchangeState::Send(int status, Headers headers, std::string body) {
    std::function<void()> forgotten;
    const std::lock_guard lock(mutex_);
    if (owner_ == nullptr || begun_) return;
    BeginLocked(status, headers, Framing::kLength, body.size());
    if (framing_ != Framing::kNone) {
        if (body.size() <= kCopiedBytes) {
            backlog_bytes_ += body.size();
            queue_.back().own += body;
        } else {
            CountLocked(body.size());
            QueueLocked({std::move(body)});
        }
    }
    complete_ = true;
    forgotten.swap(on_gone_);
    WakeLocked();
}

void ExchangeState::SendKept(int status, Headers headers, std::string_view body) {
    std::function<void()> forgotten;
    const std::lock_guard lock(mutex_);
    if (owner_ == nullptr || begun_) return;
    kept_ = true;
    BeginLocked(status, headers, Framing::kLength, body.size());
    if (framing_ != Framing::kNone) QueueLocked({{}, body});
    complete_ = true;
    forgotten.swap(on_gone_);
    WakeLocked();
}

void ExchangeState::Begin(int status, Headers headers) {
    const std::lock_guard lock(mutex_);
    if (owner_ == nullptr || begun_) return;
    stream_ = true;
    for (const auto& [name, value] : headers) {
        if (!SameName(name, "Content-Type")) continue;
        if (value.starts_with("text/event-stream")) probe_ = ":\n\n";
        if (value.starts_with("application/x-ndjson")) probe_ = " ";
    }
    BeginLocked(status, headers, request_.http11 ? Framing::kChunked : Framing::kUntilClose, 0);
    WakeLocked();
}

// Returns false if the stream accepts no bytes.
bool ExchangeState::WriteLocked(std::string chunk) {
    if (owner_ == nullptr || !stream_ || complete_) return false;
    if (framing_ == Framing::kNone || chunk.empty()) return true;
    if (framing_ == Framing::kChunked) {
        std::string framed = fmt::format("{:x}\r\n", chunk.size());
        if (chunk.size() <= kCopiedBytes) {
            framed.reserve(framed.size() + chunk.size() + 2);
            framed += chunk;
            framed += "\r\n";
            QueueLocked({std::move(framed)});
        } else {
            QueueLocked({std::move(framed)});
            QueueLocked({std::move(chunk)});
            QueueLocked({"\r\n"});
        }
    } else {
        QueueLocked({std::move(chunk)});
    }
    return true;
}

void ExchangeState::Write(std::string chunk) {
    const std::lock_guard lock(mutex_);
    if (WriteLocked(std::move(chunk))) WakeLocked();
}

bool ExchangeState::Probe() {
    {
        const std::lock_guard lock(mutex_);
        if (!begun_) return false;
        if (probe_ == nullptr) return true;
    }
    Write(probe_);
    return true;
}

void ExchangeState::EndWith(std::string last) {
    // destroyed after the lock: may hold the last reference to this
    std::function<void()> forgotten;
    const std::lock_guard lock(mutex_);
    if (!WriteLocked(std::move(last))) return;
    if (framing_ == Framing::kChunked) QueueLocked({"0\r\n\r\n"});
    complete_ = true;
    forgotten.swap(on_gone_);
    WakeLocked();
}

void ExchangeState::OnDisconnect(std::function<void()> callback) {
    {
        const std::lock_guard lock(mutex_);
        if (complete_) return;
        if (!gone_) {
            on_gone_.swap(callback);
            return;
        }
    }
    if (callback) callback();
}

void ExchangeState::OnSilence(std::function<std::string()> fill) {
    const std::lock_guard lock(mutex_);
    if (owner_ == nullptr || !stream_ || complete_) return;
    fill_ = std::move(fill);
    fills_ = true;
    WakeLocked();  // the connection sets its timer
}

void ExchangeState::Fill() {
    std::function<std::string()> fill;
    {
        const std::lock_guard lock(mutex_);
        if (complete_) return;
        fill = fill_;
    }
    if (fill) Write(fill());
}

std::optional<Refusal> ExchangeState::Hold(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (owner_ == nullptr || bytes <= counted_bytes_) return {};
    if (counted_bytes_ == 0) holder_ = note_.key;
    auto refusal = owner_->Hold(holder_, bytes - counted_bytes_, counted_bytes_);
    if (!refusal) counted_bytes_ = bytes;
    return refusal;
}

void ExchangeState::CountLocked(size_t bytes) {
    if (owner_ == nullptr || bytes <= counted_bytes_) return;
    if (counted_bytes_ == 0) holder_ = note_.key;
    owner_->Add(holder_, bytes - counted_bytes_);
    counted_bytes_ = bytes;
}

std::optional<Refusal> ExchangeState::Reserve(size_t bytes, bool of_key) {
    const std::lock_guard lock(mutex_);
    if (owner_ == nullptr || reserved_bytes_ > 0) return {};
    reserver_ = of_key ? note_.key : "";
    auto refusal = owner_->Hold(reserver_, bytes, counted_bytes_ + request_.body.size());
    if (!refusal) reserved_bytes_ = bytes;
    return refusal;
}

void ExchangeState::Release() {
    const std::lock_guard lock(mutex_);
    const size_t reserved = std::exchange(reserved_bytes_, 0);
    if (owner_ != nullptr && reserved > 0) owner_->Release(reserver_, reserved);
}

void ExchangeState::CountBacklog() {
    const std::lock_guard lock(mutex_);
    if (kept_) return;
    CountLocked(backlog_bytes_);
    const size_t left = backlog_bytes_;
    if (owner_ == nullptr || !stream_ || left >= counted_bytes_) return;
    owner_->Release(holder_, counted_bytes_ - left);
    counted_bytes_ = left;
}

std::string ExchangeState::client() const {
    const std::lock_guard lock(mutex_);
    return note_.key;
}

std::shared_ptr<ExchangeOwner> ExchangeState::LeaveOwnerLocked() {
    auto owner = std::exchange(owner_, nullptr);
    const size_t counted = std::exchange(counted_bytes_, 0);
    if (owner != nullptr && counted > 0) owner->Release(holder_, counted);
    const size_t reserved = std::exchange(reserved_bytes_, 0);
    if (owner != nullptr && reserved > 0) owner->Release(reserver_, reserved);
    return owner;
}

void ExchangeState::Abandon() {
    std::function<void()> forgotten;
    bool begun = false;
    {
        const std::lock_guard lock(mutex_);
        if (owner_ == nullptr || complete_) return;
        begun = begun_;
        if (begun) {
            // No last chunk, so the client sees that the answer is incomplete.
            complete_ = true;
            keep_alive_ = false;
            forgotten.swap(on_gone_);
            WakeLocked();
        }
    }
    if (begun) return;
    Send(500, {{"Content-Type", "application/json"}},
         ErrorBody(500, "the server dropped this request without an answer", {}, "no_answer"));
}

bool ExchangeState::TakeOutput(std::vector<Piece>& out) {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    if (out.empty()) {
        out.swap(queue_);
    } else {
        std::move(queue_.begin(), queue_.end(), std::back_inserter(out));
        queue_.clear();
    }
    return complete_;
}

void ExchangeState::Sent(size_t bytes) {
    sent_bytes_ += bytes;
    backlog_bytes_ -= std::min<size_t>(bytes, backlog_bytes_);
}

bool ExchangeState::complete() const {
    const std::lock_guard lock(mutex_);
    return complete_;
}

bool ExchangeState::stream() const {
    const std::lock_guard lock(mutex_);
    return stream_;
}

void ExchangeState::Note(const std::function<void(RequestNote&)>& edit) {
    const std::lock_guard lock(mutex_);
    edit(note_);
}

RequestNote ExchangeState::note() const {
    const std::lock_guard lock(mutex_);
    return note_;
}

bool ExchangeState::keep_alive() const {
    const std::lock_guard lock(mutex_);
    return keep_alive_;
}

int ExchangeState::status() const {
    const std::lock_guard lock(mutex_);
    return status_;
}

void ExchangeState::Done() {
    std::shared_ptr<ExchangeOwner> owner;  // released after the lock
    const std::lock_guard lock(mutex_);
    owner = LeaveOwnerLocked();
}

void ExchangeState::Gone() {
    std::shared_ptr<ExchangeOwner> owner;
    std::function<void()> callback;
    {
        const std::lock_guard lock(mutex_);
        owner = LeaveOwnerLocked();
        callback.swap(on_gone_);
        gone_ = true;
        complete_ = false;  // OnDisconnect() then calls back at once
        queue_.clear();
        backlog_bytes_ = 0;
    }
    if (callback) callback();
}

}  // namespace weft::serve

#include "hub/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <random>
#include <thread>

#include "base/text.h"
#include "hub/curl_handle.h"
#include "hub/listing.h"

namespace weft::hub {
namespace {

constexpr int kMostRedirects = 10;
constexpr int kMostAttempts = 6;
constexpr int kPollMs = 100;
constexpr int64_t kStalledBytesPerSecond = 1024;
constexpr size_t kMostHeader = 16 << 10;

struct FreeUrl {
    void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlHandle = std::unique_ptr<CURLU, FreeUrl>;

// Returns "https://host:port", always with the port; "" if `url` is not a URL.
std::string Origin(const std::string& url) {
    UrlHandle handle(curl_url());
    if (!handle || curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
        return {};
    std::string origin;
    for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
        char* text = nullptr;
        if (curl_url_get(handle.get(), part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
        origin += text;
        origin += part == CURLUPART_SCHEME ? "://" : part == CURLUPART_HOST ? ":" : "";
        curl_free(text);
    }
    return LowerCase(origin);
}

bool IsThisMachine(const std::string& origin) {
    for (const char* host : {"http://127.0.0.1:", "http://localhost:", "http://[::1]:"}) {
        if (origin.starts_with(host)) return true;
    }
    return false;
}

// Returns the URL without its query, which may hold a signature that gives access.
std::string ShownUrl(const std::string& url) {
    return Shown(url.substr(0, url.find('?')), 300);
}

std::string_view Unquoted(std::string_view etag) {
    if (etag.starts_with("W/")) etag.remove_prefix(2);
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
        etag = etag.substr(1, etag.size() - 2);
    }
    return etag;
}

bool IsRedirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool MayPass(int status) {
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

bool MayPass(CURLcode code) {
    constexpr CURLcode kPassing[] = {CURLE_COULDNT_RESOLVE_HOST,
                                     CURLE_COULDNT_RESOLVE_PROXY,
                                     CURLE_COULDNT_CONNECT,
                                     CURLE_PARTIAL_FILE,
                                     CURLE_OPERATION_TIMEDOUT,
                                     CURLE_SSL_CONNECT_ERROR,
                                     CURLE_GOT_NOTHING,
                                     CURLE_SEND_ERROR,
                                     CURLE_RECV_ERROR};
    return std::ranges::find(kPassing, code) != std::end(kPassing);
}

ErrorCode CodeOf(CURLcode code) {
    return code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout : ErrorCode::kIo;
}

// Returns the Hub's page for the repository that `url` belongs to, where a user accepts a licence.
std::string RepoPage(const std::string& url, const std::string& endpoint) {
    std::string rest = url.substr(std::min(url.size(), endpoint.size() + 1));
    if (rest.starts_with("api/models/")) rest = rest.substr(11);
    const size_t slash = rest.find('/', rest.find('/') + 1);
    return endpoint + "/" + Shown(rest.substr(0, slash));
}

Error StatusError(const Response& response, const Config& config, bool requested_hub) {
    std::string said;
    if (!response.error_message.empty()) said = " (\"" + response.error_message + "\")";
    const std::string head =
        fmt::format("{}: HTTP {}{}", ShownUrl(response.url), response.status, said);
    const bool gated = response.error_code == "GatedRepo";
    if (requested_hub && (gated || response.status == 401 || response.status == 403)) {
        const std::string page = RepoPage(response.url, config.endpoint);
        if (config.token.empty()) {
            return MakeError(ErrorCode::kDenied,
                             "{}: private, gated, or no such repository. If you have access, set "
                             "HF_TOKEN to a token of yours ({}/settings/tokens); if it is gated, "
                             "accept its licence first at {}",
                             head, config.endpoint, page);
        }
        return MakeError(ErrorCode::kDenied,
                         "{}: the token that was sent (HF_TOKEN or the token file) has no access. "
                         "Accept the licence at {} with the account it belongs to, or set HF_TOKEN "
                         "to another",
                         head, page);
    }
    if (response.status == 404) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: no such repository, revision or file. Is the name right?", head);
    }
    if (response.status == 429) {
        return MakeError(ErrorCode::kDenied,
                         "{}: too many requests. Try later, or with a token (HF_TOKEN)", head);
    }
    const bool denied = response.status == 401 || response.status == 403;
    return MakeError(denied ? ErrorCode::kDenied : ErrorCode::kIo, "{}", head);
}

bool ReadHeader(std::string_view line, std::string_view name, std::string& value) {
    if (line.size() <= name.size() || line[name.size()] != ':') return false;
    if (LowerCase(line.substr(0, name.size())) != name) return false;
    value = Trim(line.substr(name.size() + 1));
    return true;
}

class PageSink : public Sink {
  public:
    PageSink(std::string& text, uint64_t most_bytes, const std::string& url,
             const Deadline& deadline)
        : text_(text), most_bytes_(most_bytes), url_(url), deadline_(deadline) {}
    Status Head(const Response&) override {
        text_.clear();
        return {};
    }
    Status Data(std::span<const std::byte> bytes) override {
        if (bytes.size() > most_bytes_ - text_.size()) {
            return MakeError(ErrorCode::kUnsupported, "{}: an answer of more than {} bytes",
                             ShownUrl(url_), most_bytes_);
        }
        if (deadline_.expired()) {
            return MakeError(ErrorCode::kTimeout, "{}: incomplete after {} ms", ShownUrl(url_),
                             deadline_.length_ms());
        }
        text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return {};
    }

  private:
    std::string& text_;
    uint64_t most_bytes_;
    const std::string& url_;
    const Deadline& deadline_;
};

}  // namespace

class Connection::Impl {
  public:
    explicit Impl(const Config& config)
        : config_(config),
          hub_(Origin(config.endpoint)),
          curl_([this](std::string_view data) { return TakeData(data); }, config.connect_ms,
                config.ca_file),
          multi_(curl_multi_init()) {
        WEFT_CHECK(multi_ != nullptr);
        curl_.Set(CURLOPT_FOLLOWLOCATION, 0L);
        if (!config.endpoint.starts_with("http://")) curl_.Set(CURLOPT_PROTOCOLS_STR, "https");
        // A name look-up cannot be cancelled; without this option curl would wait for it.
        curl_.Set(CURLOPT_QUICK_EXIT, 1L);
        curl_.Set(CURLOPT_BUFFERSIZE, 256L << 10);
        curl_.Set(CURLOPT_USERAGENT, "weft/" WEFT_VERSION);
        curl_.Set(CURLOPT_HEADERFUNCTION, &Impl::OnHeader);
        curl_.Set(CURLOPT_HEADERDATA, this);
        if (!config.ca_folder.empty()) curl_.Set(CURLOPT_CAPATH, config.ca_folder.c_str());
    }
    ~Impl() { curl_multi_cleanup(multi_); }

    Outcome Get(const std::string& first, std::optional<ByteRange> range, Sink& sink,
                const std::atomic<bool>* stop) {
        response_ = Response{};
        stop_ = stop;
        sink_ = &sink;
        std::string url = first;
        for (int hop = 0; hop <= kMostRedirects; ++hop) {
            Outcome outcome = One(url, range);
            if (outcome.error || !IsRedirect(response_.status)) return outcome;
            char* next = nullptr;
            curl_easy_getinfo(curl_.get(), CURLINFO_REDIRECT_URL, &next);
            if (next == nullptr) {
                return Failed(MakeError(ErrorCode::kIo, "{}: HTTP {} without a target",
                                        ShownUrl(url), response_.status));
            }
            if (url.starts_with("https://") && !std::string_view(next).starts_with("https://")) {
                return Failed(MakeError(ErrorCode::kDenied,
                                        "{}: refused: it redirects from https to {}", ShownUrl(url),
                                        ShownUrl(next)));
            }
            url = next;
        }
        return Failed(MakeError(ErrorCode::kIo, "{}: more than {} redirects, the last to {}",
                                ShownUrl(first), kMostRedirects, ShownUrl(url)));
    }

  private:
    Outcome Failed(Error error, bool may_retry = false) const {
        return Outcome{response_, std::move(error), may_retry, -1};
    }

    // Sends one request and does not follow a redirect.
    Outcome One(const std::string& url, std::optional<ByteRange> range) {
        const std::string origin = Origin(url);
        const bool secret = origin.starts_with("https://") || IsThisMachine(origin);
        curl_.SetUrl(url);
        if (origin == hub_ && secret && !config_.token.empty()) {
            curl_.AddHeader("Authorization: Bearer " + config_.token);
        }
        const std::string part =
            range ? fmt::format("{}-{}", range->begin, range->end - 1) : std::string();
        curl_.Set(CURLOPT_RANGE, range ? part.c_str() : nullptr);
        ResetResponse(0, url);
        received_ = 0;
        headed_ = false;
        refused_.reset();
        return Judge(Perform(), origin == hub_);
    }

    Outcome Judge(CURLcode code, bool requested_hub) {
        if (refused_) return Failed(*refused_);
        const std::string& url = response_.url;
        if (Stopped()) return Failed(MakeError(ErrorCode::kCancelled, "stopped"));
        if (stalled_) {
            return Failed(MakeError(ErrorCode::kTimeout,
                                    "{}: stalled: {} bytes came, less than 1 KiB/s in the last {} "
                                    "ms",
                                    ShownUrl(url), received_, config_.stall_ms),
                          true);
        }
        if (code != CURLE_OK) {
            const char* hint = code == CURLE_PEER_FAILED_VERIFICATION
                                   ? ". Its certificate is not trusted: --cacert FILE or "
                                     "SSL_CERT_FILE names others to trust"
                                   : "";
            return Failed(MakeError(CodeOf(code), "{}: {}{}", ShownUrl(url),
                                    Shown(curl_.Reason(code), 200), hint),
                          MayPass(code));
        }
        if (IsRedirect(response_.status)) return {response_, std::nullopt, false, -1};
        if (response_.status == 200 || response_.status == 206) {
            const Status head = Head();  // curl does not call OnData for an empty body
            if (!head.ok()) return Failed(head.error());
            return {response_, std::nullopt, false, -1};
        }
        Outcome outcome =
            Failed(StatusError(response_, config_, requested_hub), MayPass(response_.status));
        curl_off_t wait_s = 0;
        curl_easy_getinfo(curl_.get(), CURLINFO_RETRY_AFTER, &wait_s);
        if (wait_s > 0) outcome.wait_ms = std::min<int64_t>(wait_s, 1 << 20) * 1000;
        return outcome;
    }

    bool Stopped() const {
        return config_.Stopped() || (stop_ != nullptr && stop_->load(std::memory_order_relaxed));
    }

    // Runs the request. Returns CURLE_ABORTED_BY_CALLBACK if it stalls or is stopped.
    CURLcode Perform() {
        WEFT_CHECK(curl_multi_add_handle(multi_, curl_.get()) == CURLM_OK);
        CURLcode code = CURLE_ABORTED_BY_CALLBACK;
        stalled_ = false;
        int64_t window_ns = NowNs();
        uint64_t window_bytes = 0;
        for (int running = 1; running > 0;) {
            if (curl_multi_perform(multi_, &running) != CURLM_OK || running == 0) break;
            curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
            if (Stopped()) break;
            const int64_t passed_ms = (NowNs() - window_ns) / 1'000'000;
            const auto least =
                static_cast<uint64_t>(config_.stall_ms * kStalledBytesPerSecond / 1000);
            if (received_ - window_bytes >= least) {
                window_ns = NowNs();
                window_bytes = received_;
            } else if (passed_ms > config_.stall_ms + (received_ == 0 ? config_.connect_ms : 0)) {
                stalled_ = true;
                break;
            }
        }
        int left = 0;
        while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
            if (message->msg == CURLMSG_DONE) code = message->data.result;
        }
        curl_multi_remove_handle(multi_, curl_.get());
        return code;
    }

    // Resets the response, but keeps the facts about the file from an earlier redirect.
    void ResetResponse(int status, std::string url) {
        Response fresh;
        fresh.status = status;
        fresh.url = std::move(url);
        fresh.linked_etag = std::move(response_.linked_etag);
        response_ = std::move(fresh);
    }

    // Tells the sink once about the response, before the first byte of its body.
    Status Head() {
        if (headed_) return {};
        headed_ = true;
        return sink_->Head(response_);
    }

    static size_t OnHeader(char* data, size_t size, size_t count, void* self) {
        static_cast<Impl*>(self)->TakeHeader({data, size * count});
        return size * count;
    }

    void TakeHeader(std::string_view line) {
        if (line.size() > kMostHeader) return;
        if (line.starts_with("HTTP/")) {  // also starts an interim response, such as 100 Continue
            const size_t at = line.find(' ');
            int status = 0;
            if (at != line.npos)
                std::from_chars(line.data() + at + 1, line.data() + line.size(), status);
            ResetResponse(status, response_.url);
            return;
        }
        std::string value;
        if (ReadHeader(line, "etag", value)) response_.etag = value.substr(0, 200);
        if (ReadHeader(line, "x-linked-etag", value)) response_.linked_etag = Unquoted(value);
        if (ReadHeader(line, "link", value)) response_.link = value;
        if (ReadHeader(line, "x-error-code", value)) response_.error_code = Shown(value);
        if (ReadHeader(line, "x-error-message", value)) response_.error_message = Shown(value, 200);
        if (ReadHeader(line, "content-range", value)) response_.content_range = value;
        if (ReadHeader(line, "content-length", value)) {
            std::from_chars(value.data(), value.data() + value.size(), response_.content_length);
        }
    }

    bool TakeData(std::string_view data) {
        received_ += data.size();
        if (response_.status != 200 && response_.status != 206) {
            return received_ < kMostHeader * 4;  // the text of an error is not needed
        }
        Status taken = Head();
        if (taken.ok()) taken = sink_->Data(std::as_bytes(std::span(data)));
        if (!taken.ok()) refused_ = taken.error();
        return taken.ok();
    }

    const Config& config_;
    const std::string hub_;
    CurlHandle curl_;
    CURLM* multi_;
    Response response_;
    Sink* sink_ = nullptr;
    const std::atomic<bool>* stop_ = nullptr;
    std::optional<Error> refused_;
    uint64_t received_ = 0;
    bool headed_ = false, stalled_ = false;
};

Connection::Connection(const Config& config) : impl_(std::make_unique<Impl>(config)) {}
Connection::~Connection() = default;

Outcome Connection::Get(const std::string& url, std::optional<ByteRange> range, Sink& sink,
                        const std::atomic<bool>* stop) {
    return impl_->Get(url, range, sink, stop);
}

Result<Page> GetPage(Connection& connection, const Config& config, const std::string& url,
                     uint64_t most_bytes) {
    const Deadline deadline = Deadline::In(config.timeout_ms);
    for (int attempt = 1;; ++attempt) {
        Page page;
        PageSink sink(page.text, most_bytes, url, deadline);
        Outcome outcome = connection.Get(url, std::nullopt, sink);
        page.response = std::move(outcome.response);
        if (!outcome.error) return page;
        if (!outcome.may_retry) return *outcome.error;
        const int64_t wait_ms = outcome.wait_ms >= 0 ? outcome.wait_ms : BackoffMs(attempt);
        if (attempt == kMostAttempts || wait_ms >= deadline.left_ms()) {
            return MakeError(
                outcome.error->code, "{}; given up after {} attempts{}", outcome.error->message,
                attempt,
                outcome.wait_ms > 0
                    ? fmt::format(" (the server asks to wait {} s; --timeout allows "
                                  "{:.0f} s in all)",
                                  wait_ms / 1000, static_cast<double>(config.timeout_ms) * 1e-3)
                    : std::string());
        }
        WEFT_TRY(Pause(config, wait_ms));
    }
}

Status Pause(const Config& config, int64_t ms, const std::atomic<bool>* stop) {
    const Deadline deadline = Deadline::In(ms);
    while (!deadline.expired()) {
        if (config.Stopped() || (stop != nullptr && stop->load())) {
            return MakeError(ErrorCode::kCancelled, "stopped");
        }
        std::this_thread::sleep_for(
            std::chrono::milliseconds(std::min<int64_t>(deadline.left_ms(), kPollMs / 2)));
    }
    return {};
}

int64_t BackoffMs(int attempt) {
    thread_local std::minstd_rand random{std::random_device{}()};
    const int64_t most = std::min<int64_t>(400LL << std::min(attempt - 1, 10), 20'000);
    return most / 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(most / 2 + 1));
}

std::string UrlText(std::string_view text, bool keep_slashes) {
    std::string url;
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        const bool plain = std::isalnum(u) != 0 || c == '-' || c == '.' || c == '_' || c == '~';
        if (plain || (keep_slashes && c == '/')) {
            url += c;
        } else {
            url += fmt::format("%{:02X}", u);
        }
    }
    return url;
}

bool SameOrigin(const std::string& a, const std::string& b) {
    const std::string origin = Origin(a);
    return !origin.empty() && origin == Origin(b);
}

}  // namespace weft::hub

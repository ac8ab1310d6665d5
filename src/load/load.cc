#include "load/load.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/deadline.h"
#include "base/json.h"
#include "base/open_files.h"
#include "base/start_thread.h"
#include "hub/curl_handle.h"
#include "load/events.h"

namespace weft::load {
namespace {

using nlohmann::json;

constexpr int kPollMs = 50;
constexpr uint64_t kMostAnswer = 256 << 20;
constexpr size_t kMostErrorText = 2000;
constexpr size_t kMostList = 4 << 20;
constexpr size_t kMostReady = 1024, kMostReadyBytes = 256 << 20;  // bodies made ahead
constexpr uint64_t kOtherDescriptors = 64;
constexpr int64_t kFirstId = 256;  // lower ids are control tokens in many vocabularies
constexpr const char* kWords[] = {"river", "stone", "light", "paper", "green", "seven",
                                  "music", "table", "north", "cloud", "house", "glass",
                                  "bread", "night", "train", "apple", "voice", "field"};

Result<std::string> UrlOf(const LoadOptions& options, const char* path) {
    std::string url = options.url;
    while (url.ends_with('/')) url.pop_back();
    if (url.ends_with("/v1")) url.resize(url.size() - 3);
    if (!url.starts_with("http://") && !url.starts_with("https://")) {
        return MakeError(ErrorCode::kUsage, "--url: '{}'; expected http://HOST:PORT", options.url);
    }
    return url + path;
}

void Configure(const LoadOptions& options, const std::string& url, hub::CurlHandle& curl) {
    curl.SetUrl(url);
    if (!options.key.empty()) curl.AddHeader("Authorization: Bearer " + options.key);
    curl.Set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl.Set(CURLOPT_LOW_SPEED_TIME, static_cast<long>((options.timeout_ms + 999) / 1000));
}

// One request in progress.
class Call {
  public:
    Call(const LoadOptions& options, const std::string& url, std::string body, LoadAnswer& answer,
         int64_t begin_ns)
        : chat_(options.chat),
          body_(std::move(body)),
          answer_(answer),
          begin_ns_(begin_ns),
          events_([this](std::string_view data) { return Event(data); }),
          curl_([this](std::string_view bytes) { return Take(bytes); }, options.timeout_ms,
                options.ca_file) {
        Configure(options, url, curl_);
        curl_.AddHeader("Content-Type: application/json");
        curl_.AddHeader("Expect:");
        curl_.Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
        curl_.Set(CURLOPT_POSTFIELDS, body_.c_str());
        sent_ns_ = last_ns_ = NowNs();
        answer_.start_s = Seconds(sent_ns_ - begin_ns_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    CURL* easy() { return curl_.get(); }

    void Finish(CURLcode code) {
        answer_.end_s = Seconds(NowNs() - begin_ns_);
        const long status = curl_.Status();
        if (!error_.empty()) {
            answer_.error = error_;
        } else if (status != 0 && status != 200) {
            answer_.error = fmt::format("HTTP {}: {}", status, Printable(text_));
        } else if (code != CURLE_OK) {
            answer_.error = curl_.Reason(code);
        } else if (pieces_ == 0) {
            answer_.error = "the answer has no tokens or is not a stream of events";
        } else if (!done_) {
            answer_.error = "the answer ends without [DONE]";
        } else {
            answer_.ok = true;
        }
        if (answer_.output_tokens == 0) answer_.output_tokens = pieces_;
    }

  private:
    static double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }
    static std::string Printable(std::string text) {
        text.resize(std::min<size_t>(text.size(), 300));
        std::ranges::replace_if(
            text, [](unsigned char c) { return c < ' ' || c > '~'; }, ' ');
        return text;
    }
    bool Take(std::string_view bytes) {
        const long status = curl_.Status();
        received_ += bytes.size();
        if (status != 200) {  // text of an error
            text_ += bytes.substr(0, kMostErrorText - std::min(kMostErrorText, text_.size()));
            return received_ < kMostAnswer;
        }
        if (received_ > kMostAnswer) error_ = "the answer is too long";
        const Status taken = events_.Take(bytes);
        if (!taken.ok() && error_.empty()) error_ = taken.error().message;
        return error_.empty();
    }
    Status Event(std::string_view data) {
        if (data == "[DONE]") {
            done_ = true;
            return {};
        }
        WEFT_ASSIGN(const Chunk chunk, ParseChunk(data, chat_));
        if (chunk.has_usage) {
            answer_.input_tokens = chunk.input_tokens;
            answer_.output_tokens = chunk.output_tokens;
        }
        if (!chunk.is_piece) return {};
        const int64_t now_ns = NowNs();
        if (pieces_++ == 0) {
            answer_.first_s = Seconds(now_ns - sent_ns_);
        } else {
            answer_.gaps_s.push_back(Seconds(now_ns - last_ns_));
        }
        last_ns_ = now_ns;
        return {};
    }

    const bool chat_;
    const std::string body_;
    LoadAnswer& answer_;
    const int64_t begin_ns_;
    EventReader events_;
    hub::CurlHandle curl_;
    int64_t sent_ns_ = 0, last_ns_ = 0, pieces_ = 0;
    uint64_t received_ = 0;
    bool done_ = false;
    std::string error_, text_;
};

// Request bodies by number: prompts with a common prefix and a random rest.
class Bodies {
  public:
    Bodies(const LoadOptions& options, bool ids) : options_(options), ids_(ids) {}

    std::string Make(uint64_t number, const Lengths& lengths) const {
        json body = {{"model", options_.model},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}},
                     {"max_tokens", lengths.output},
                     {"ignore_eos", true},
                     {"temperature", 0}};
        std::mt19937_64 common(options_.seed), own(options_.seed * 1'000'003 + number + 1);
        const int64_t shared = std::min(options_.shared_prefix, lengths.input);
        if (ids_) {
            json prompt = json::array();
            const int64_t least = std::min(kFirstId, options_.vocab / 2);
            for (int64_t i = 0; i < lengths.input; ++i) {
                const uint64_t range = static_cast<uint64_t>(options_.vocab - least);
                prompt.push_back(least +
                                 static_cast<int64_t>((i < shared ? common : own)() % range));
            }
            body["prompt"] = std::move(prompt);
            return body.dump();
        }
        std::string text;
        for (int64_t i = 0; i < lengths.input; ++i) {
            if (i > 0) text += ' ';
            text += kWords[(i < shared ? common : own)() % std::size(kWords)];
        }
        if (options_.chat) {
            body["messages"] = json::array({{{"role", "user"}, {"content", text}}});
        } else {
            body["prompt"] = text;
        }
        return body.dump();
    }

  private:
    const LoadOptions& options_;
    const bool ids_;
};

// Bodies made ahead on a thread, so that their making delays no request and no answer.
class ReadyBodies {
  public:
    // make: the body of a request. ahead: most bodies that wait. multi: woken for each new body.
    ReadyBodies(std::function<std::string(size_t)> make, size_t count, size_t ahead, CURLM* multi)
        : make_(std::move(make)),
          count_(count),
          ahead_(std::clamp<size_t>(ahead, 1, kMostReady)),
          multi_(multi) {}
    ~ReadyBodies() {
        {
            const std::lock_guard lock(lock_);
            left_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }
    ReadyBodies(const ReadyBodies&) = delete;
    ReadyBodies& operator=(const ReadyBodies&) = delete;

    Status Start() {
        return StartThread(thread_, [this] { Run(); }, {.signals = false});
    }
    // Waits until no more bodies are made ahead, for at most kPollMs.
    bool WaitFull() {
        std::unique_lock lock(lock_);
        return changed_.wait_for(lock, std::chrono::milliseconds(kPollMs),
                                 [&] { return IsFull(); });
    }
    // The next body; empty: it is not made yet.
    std::optional<std::string> Take() {
        const std::lock_guard lock(lock_);
        if (ready_.empty()) return std::nullopt;
        std::string body = std::move(ready_.front());
        ready_.pop_front();
        bytes_ -= body.size();
        changed_.notify_all();
        return body;
    }

  private:
    bool IsFull() const {
        return made_ == count_ || ready_.size() >= ahead_ || bytes_ >= kMostReadyBytes;
    }
    void Run() {
        for (;;) {
            std::unique_lock lock(lock_);
            changed_.wait(lock, [&] { return left_ || made_ == count_ || !IsFull(); });
            if (left_ || made_ == count_) return;
            lock.unlock();
            std::string body = make_(made_);
            lock.lock();
            bytes_ += body.size();
            ready_.push_back(std::move(body));
            ++made_;
            changed_.notify_all();
            curl_multi_wakeup(multi_);
        }
    }

    const std::function<std::string(size_t)> make_;
    const size_t count_, ahead_;
    CURLM* const multi_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::string> ready_;
    size_t made_ = 0, bytes_ = 0;  // made_: written by the thread alone
    bool left_ = false;
    std::thread thread_;
};

// Start times of the requests at a given rate, in seconds.
std::vector<double> Starts(const LoadOptions& options, size_t count) {
    std::vector<double> starts(count);
    if (options.rate <= 0) return starts;
    std::mt19937_64 random(options.seed + 77);
    std::exponential_distribution<double> gap(options.rate);
    double at = 0;
    for (double& start : starts) {
        start = at;
        at += gap(random);
    }
    return starts;
}

class Runner {
  public:
    // descriptors: that this process may open.
    Runner(const LoadOptions& options, std::string url, const std::atomic<bool>* stop,
           uint64_t descriptors)
        : options_(options),
          url_(std::move(url)),
          stop_(stop),
          descriptors_(descriptors),
          multi_(curl_multi_init()) {
        WEFT_CHECK(multi_ != nullptr);
    }
    ~Runner() {
        for (auto& [easy, call] : calls_) curl_multi_remove_handle(multi_, easy);
        calls_.clear();
        curl_multi_cleanup(multi_);
    }
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    // Runs requests of these lengths; their bodies are numbered from `first`.
    Result<std::vector<LoadAnswer>> Run(const Bodies& bodies, uint64_t first,
                                        const std::vector<Lengths>& lengths,
                                        const std::vector<double>& starts, size_t at_once,
                                        const std::function<void(int)>& done) {
        std::vector<LoadAnswer> answers(lengths.size());
        size_t next = 0, answered = 0;
        ReadyBodies ready([&](size_t i) { return bodies.Make(first + i, lengths[i]); },
                          lengths.size(), at_once, multi_);
        WEFT_TRY(ready.Start());
        while (!IsStopped() && !ready.WaitFull()) continue;
        const int64_t begin_ns = NowNs();
        while (answered < answers.size()) {
            if (IsStopped()) return MakeError(ErrorCode::kCancelled, "stopped");
            const double now_s = SecondsSince(begin_ns);
            const auto is_due = [&] {
                return next < answers.size() && calls_.size() < at_once && starts[next] <= now_s;
            };
            while (is_due()) {
                auto body = ready.Take();
                if (!body) break;  // (a new one ends the wait)
                WEFT_TRY(Begin(std::move(*body), answers[next++], begin_ns));
            }
            int running = 0;
            if (curl_multi_perform(multi_, &running) != CURLM_OK) {
                return MakeError(ErrorCode::kIo, "{}: libcurl failed", url_);
            }
            const size_t ended = End();
            answered += ended;
            if (ended > 0) {
                if (done) done(static_cast<int>(answered));
                continue;
            }
            int64_t wait_ms = kPollMs;
            if (next < answers.size() && calls_.size() < at_once && !is_due()) {
                wait_ms = static_cast<int64_t>((starts[next] - now_s) * 1e3);
            }
            curl_multi_poll(multi_, nullptr, 0,
                            static_cast<int>(std::clamp<int64_t>(wait_ms, 0, kPollMs)), nullptr);
        }
        return answers;
    }

  private:
    bool IsStopped() const { return stop_ != nullptr && stop_->load(); }
    Status Begin(std::string body, LoadAnswer& answer, int64_t begin_ns) {
        if (calls_.size() + kOtherDescriptors >= descriptors_) {
            return MakeError(ErrorCode::kUsage,
                             "more than {} requests at once, and this process may open {} "
                             "descriptors. Raise the limit ('ulimit -Hn'), or use fewer --clients",
                             calls_.size(), descriptors_);
        }
        auto call = std::make_unique<Call>(options_, url_, std::move(body), answer, begin_ns);
        CURL* easy = call->easy();
        WEFT_CHECK(curl_multi_add_handle(multi_, easy) == CURLM_OK);
        calls_.emplace_back(easy, std::move(call));
        return {};
    }
    size_t End() {
        size_t ended = 0;
        int left = 0;
        while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
            if (message->msg != CURLMSG_DONE) continue;
            const auto call = std::ranges::find(calls_, message->easy_handle,
                                                [](const auto& one) { return one.first; });
            WEFT_CHECK(call != calls_.end());
            call->second->Finish(message->data.result);
            curl_multi_remove_handle(multi_, call->first);
            calls_.erase(call);
            ++ended;
        }
        return ended;
    }

    const LoadOptions& options_;
    const std::string url_;
    const std::atomic<bool>* stop_;
    const uint64_t descriptors_;
    CURLM* multi_;
    std::vector<std::pair<CURL*, std::unique_ptr<Call>>> calls_;
};

}  // namespace

Result<std::string> FirstModel(const LoadOptions& options) {
    WEFT_ASSIGN(const std::string url, UrlOf(options, "/v1/models"));
    std::string text;
    const auto take = [&](std::string_view data) {
        if (text.size() + data.size() > kMostList) return false;
        text += data;
        return true;
    };
    hub::CurlHandle curl(take, options.timeout_ms, options.ca_file);
    Configure(options, url, curl);
    const CURLcode code = curl_easy_perform(curl.get());
    if (code != CURLE_OK) {
        return MakeError(ErrorCode::kIo,
                         "{}: {}; is the server running? Set its address with --url", url,
                         curl_easy_strerror(code));
    }
    const json list = JsonOrDiscarded(text);
    if (list.is_object() && list.contains("data") && list["data"].is_array()) {
        for (const json& model : list["data"]) {
            if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
            return model["id"].get<std::string>();
        }
    }
    return MakeError(ErrorCode::kUsage, "{} lists no model; name one with --model", url);
}

Result<LoadReport> RunLoad(const LoadOptions& options, const std::atomic<bool>* stop,
                           const std::function<void(int done)>& done) {
    hub::InitCurl();
    WEFT_ASSIGN(const std::string url,
                UrlOf(options, options.chat ? "/v1/chat/completions" : "/v1/completions"));
    const std::vector<Lengths> lengths = MakeLengths(options);
    const size_t at_once = options.clients > 0 ? static_cast<size_t>(options.clients)
                           : options.rate > 0  ? lengths.size()
                                               : 1;
    // (A request has two more while the name of the host is looked up.)
    Runner runner(options, url, stop, AllowOpenFiles(kOtherDescriptors + 3 * at_once + 1));
    bool ids = options.prompt == PromptKind::kIds && !options.chat;
    const uint64_t apart = 1ull << 32;  // warm-up requests use other prompts
    if (options.prompt == PromptKind::kAuto && !options.chat) {
        WEFT_ASSIGN(const auto probe,
                    runner.Run(Bodies(options, true), apart, {{8, 2}}, {0}, 1, {}));
        ids = probe[0].ok;
    }
    const Bodies bodies(options, ids);
    const size_t warmup = std::min(static_cast<size_t>(options.warmup), lengths.size());
    if (warmup > 0) {
        WEFT_ASSIGN(const auto warm,
                    runner.Run(bodies, apart + 1, {lengths.begin(), lengths.begin() + warmup},
                               std::vector<double>(warmup), at_once, {}));
        if (!warm[0].ok) {
            return MakeError(ErrorCode::kIo, "{}: the first request failed: {}", url,
                             warm[0].error);
        }
    }
    WEFT_ASSIGN(const auto answers,
                runner.Run(bodies, 0, lengths, Starts(options, lengths.size()), at_once, done));
    LoadReport report = MakeReport(answers);
    report.ids = ids;
    if (report.completed > 0) return report;
    return MakeError(ErrorCode::kIo, "{}: no request was answered; error of the first one: {}", url,
                     report.first_error);
}

}  // namespace weft::load

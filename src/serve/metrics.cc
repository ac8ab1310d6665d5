#include "serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

namespace weft::serve {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Bounds = Histogram::BucketBoundaries;

const Bounds kShortSeconds{0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,
                           0.15,  0.2,    0.3,   0.5,  0.75, 1,    2.5,  5,     10};
const Bounds kLongSeconds{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640};
const Bounds kTokens{1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

}  // namespace

struct Metrics::Impl {
    Impl(const std::string& name, const std::string& model)
        : prefix(name + ":"), labels{{"model_name", model}} {}

    Gauge& MakeGauge(const char* name, const char* help, prometheus::Labels more = {}) {
        more.insert(labels.begin(), labels.end());
        return prometheus::BuildGauge().Name(prefix + name).Help(help).Register(registry).Add(more);
    }
    // A counter of which the engine keeps the count.
    Counter& MakeCounter(const char* name, const char* help, prometheus::Labels more = {}) {
        more.insert(labels.begin(), labels.end());
        return prometheus::BuildCounter()
            .Name(prefix + name)
            .Help(help)
            .Register(registry)
            .Add(more);
    }
    Histogram& MakeHistogram(const char* name, const char* help, const Bounds& bounds) {
        return prometheus::BuildHistogram()
            .Name(prefix + name)
            .Help(help)
            .Register(registry)
            .Add(labels, bounds);
    }
    static void Raise(Counter& counter, double to) {
        if (to > counter.Value()) counter.Increment(to - counter.Value());
    }

    std::string prefix;
    prometheus::Labels labels;
    prometheus::Registry registry;
    std::mutex mutex;  // of Text: two scrapes at once must not raise a counter twice

    Gauge& running = MakeGauge("num_requests_running", "Sequences that run.");
    Gauge& waiting = MakeGauge("num_requests_waiting", "Sequences that wait.");
    Gauge& kv_usage =
        MakeGauge("kv_cache_usage_perc", "Share of the KV pages that sequences hold; 1 is all.");
    Gauge& ranks = MakeGauge("ranks", "Ranks of the cluster.");
    Gauge& ready = MakeGauge("serving", "1 while the cluster serves, else 0.");
    Counter& preemptions = MakeCounter("num_preemptions_total", "Sequences taken back.");
    Counter& prompt_tokens = MakeCounter("prompt_tokens_total", "Tokens of prompts.");
    Counter& said_tokens = MakeCounter("generation_tokens_total", "Tokens that were said.");
    Counter& asked = MakeCounter("prefix_cache_queries_total",
                                 "Tokens of prompts that were looked for in the prefix cache.");
    Counter& hits = MakeCounter("prefix_cache_hits_total", "Tokens that were found there.");
    Counter& steps = MakeCounter("steps_total", "Steps that all ranks ran.");
    Counter& step_rows = MakeCounter("step_rows_total", "Rows (tokens) in these steps.");
    Counter& step_s = MakeCounter("step_seconds_total", "Time in steps.");
    Counter& plan_s = MakeCounter("schedule_seconds_total", "Time in the scheduler.");
    Counter& say_s = MakeCounter("sample_seconds_total", "Time in sampling and writing answers.");
    Counter& drafts = MakeCounter("spec_decode_num_drafts_total",
                                  "Times that a sequence had guesses in a step.");
    Counter& drafted = MakeCounter("spec_decode_num_draft_tokens_total", "Tokens guessed.");
    Counter& accepted =
        MakeCounter("spec_decode_num_accepted_tokens_total", "Guesses that came true.");
    Counter& recoveries = MakeCounter("recoveries_total", "Losses of ranks that were got over.");
    Histogram& first = MakeHistogram("time_to_first_token_seconds",
                                     "From the request to its first token.", kLongSeconds);
    Histogram& gap = MakeHistogram("inter_token_latency_seconds",
                                   "Between two tokens of an answer.", kShortSeconds);
    Histogram& total = MakeHistogram("e2e_request_latency_seconds",
                                     "From the request to its last token.", kLongSeconds);
    Histogram& queue = MakeHistogram("request_queue_time_seconds",
                                     "From the request to its first step.", kLongSeconds);
    Histogram& prompt = MakeHistogram("request_prompt_tokens", "Tokens of a prompt.", kTokens);
    Histogram& answer = MakeHistogram("request_generation_tokens", "Tokens of an answer.", kTokens);
};

Metrics::Metrics(const std::string& prefix, const std::string& model)
    : impl_(std::make_unique<Impl>(prefix, model)) {}

Metrics::~Metrics() = default;

void Metrics::Add(const AnswerRecord& record, const std::string& adapter) {
    Impl& m = *impl_;
    if (!adapter.empty()) {
        m.MakeCounter("lora_requests_total", "Requests that used a LoRA adapter, by its name.",
                      {{"lora_name", adapter}})
            .Increment();
    }
    for (const engine::Ending& ending : record.endings) {
        const bool embedded = ending.finish == "embedding";
        const bool stopped = ending.finish == "eos" || ending.finish == "stop";
        m.MakeCounter("request_success_total", "Answers that were completed.",
                      {{"finished_reason", embedded  ? "embedding"
                                           : stopped ? "stop"
                                                     : "length"}})
            .Increment();
        m.first.Observe(ending.first_token_s);
        m.total.Observe(ending.total_s);
        m.queue.Observe(ending.queue_s);
        m.prompt.Observe(static_cast<double>(ending.prompt_tokens));
        m.answer.Observe(static_cast<double>(ending.said_tokens));
    }
    for (const float gap : record.gaps_s) m.gap.Observe(static_cast<double>(gap));
    if (!record.error.empty()) {
        m.MakeCounter("request_failed_total", "Requests that ended with an error.").Increment();
    }
}

void Metrics::AddRefused(int status) {
    impl_
        ->MakeCounter("request_refused_total", "Requests that were refused, by status.",
                      {{"status", std::to_string(status)}})
        .Increment();
}

std::string Metrics::Text(const engine::EngineStats& stats) {
    Impl& m = *impl_;
    const std::lock_guard lock(m.mutex);
    const engine::ScheduleStats& s = stats.schedule;
    const auto real = [](int64_t count) { return static_cast<double>(count); };
    m.running.Set(real(s.running));
    m.waiting.Set(real(s.waiting));
    const int64_t used = s.pages - s.free_pages - s.idle_pages;
    m.kv_usage.Set(s.pages > 0 ? real(used) / real(s.pages) : 0);
    m.ranks.Set(real(static_cast<int64_t>(stats.ranks.size())));
    m.ready.Set(stats.state == engine::EngineState::kServing ? 1 : 0);
    Impl::Raise(m.preemptions, real(s.preemptions));
    Impl::Raise(m.prompt_tokens, real(stats.prompt_tokens));
    Impl::Raise(m.said_tokens, real(stats.said_tokens));
    Impl::Raise(m.asked, real(s.cache_asked));
    Impl::Raise(m.hits, real(s.cache_hit));
    Impl::Raise(m.steps, real(stats.steps));
    Impl::Raise(m.step_rows, real(stats.step_rows));
    Impl::Raise(m.step_s, stats.step_s);
    Impl::Raise(m.plan_s, stats.plan_s);
    Impl::Raise(m.say_s, stats.say_s);
    const engine::DraftCounts& d = stats.drafts;
    Impl::Raise(m.drafts, real(d.drafts));
    Impl::Raise(m.drafted, real(d.drafted));
    Impl::Raise(m.accepted, real(d.accepted));
    for (size_t i = 0; i < d.by_place.size(); ++i) {
        Impl::Raise(m.MakeCounter("spec_decode_num_accepted_tokens_per_pos_total",
                                  "Guesses that came true, by their place in a draft.",
                                  {{"position", std::to_string(i)}}),
                    real(d.by_place[i]));
    }
    Impl::Raise(m.recoveries, real(stats.recovered));
    for (const engine::RankReport& r : stats.ranks) {
        const prometheus::Labels rank{{"rank", std::to_string(r.rank)}, {"host", r.host}};
        m.MakeGauge("rank_wait_seconds", "Time that a rank has waited for others.", rank)
            .Set(r.wait_s);
        m.MakeGauge("rank_step_seconds", "Time that a rank has spent in steps.", rank)
            .Set(r.step_s);
        m.MakeGauge("rank_memory_bytes", "Memory of a rank's process.", rank)
            .Set(real(static_cast<int64_t>(r.rss_bytes)));
    }
    return prometheus::TextSerializer().Serialize(m.registry.Collect());
}

}  // namespace weft::serve

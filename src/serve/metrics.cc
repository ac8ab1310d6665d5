#include "serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weft::serve {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Bounds = Histogram::BucketBoundaries;

const Bounds kRequestSeconds{0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Bounds kFirstTokenSeconds{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Bounds kTokenSeconds{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                           0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Bounds kChoices{1, 2, 5, 10, 20};

// Bucket bounds 1, 2, 5, 10, 20, ... up to the context.
Bounds TokenBounds(int64_t context) {
    Bounds bounds;
    for (int64_t power = 1; power <= context; power *= 10) {
        for (const int64_t digit : {1, 2, 5}) {
            if (digit * power <= context) bounds.push_back(static_cast<double>(digit * power));
        }
    }
    return bounds;
}

double Real(int64_t count) {
    return static_cast<double>(count);
}

}  // namespace

struct Metrics::Impl {
    Impl(const std::string& name, const MetricsInfo& about)
        : prefix(name.ends_with('_') ? name : name + ":"),
          labels{{"model_name", about.model}, {"engine", "0"}},
          info(about),
          token_bounds(TokenBounds(about.context)) {
        // Start these counters at 0, so that rates are defined from the first request on.
        for (const char* reason : {"stop", "length", "abort", "error"}) Ended(reason, 0);
    }

    Gauge& MakeGauge(const char* name, const char* help, prometheus::Labels more = {}) {
        more.insert(labels.begin(), labels.end());
        return prometheus::BuildGauge().Name(prefix + name).Help(help).Register(registry).Add(more);
    }
    prometheus::Family<Gauge>& MakeFamily(const char* name, const char* help) {
        return prometheus::BuildGauge().Name(prefix + name).Help(help).Register(registry);
    }
    // A gauge that may be absent in the next scrape, since its rank or label value has disappeared.
    void SetNow(prometheus::Family<Gauge>& family, double value, prometheus::Labels more) {
        more.insert(labels.begin(), labels.end());
        Gauge& gauge = family.Add(more);
        gauge.Set(value);
        passing.emplace_back(&family, &gauge);
    }
    // Removes the gauges that the last scrape set and this one did not. (A removal searches the
    // whole family.)
    void ForgetPassed() {
        std::unordered_set<const Gauge*> here;
        for (const auto& [family, gauge] : passing) here.insert(gauge);
        for (const auto& [family, gauge] : passed) {
            if (!here.contains(gauge)) family->Remove(gauge);
        }
        passed = std::exchange(passing, {});
    }
    // A counter that mirrors a count of the engine.
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
    void Ended(const char* reason, int64_t count) {
        MakeCounter("request_success_total", "Finished answers, by reason.",
                    {{"finished_reason", reason}})
            .Increment(Real(count));
    }
    void Observe(const AnswerRecord& record, const engine::Ending& ending);
    void ObserveGaps(const std::vector<float>& gaps_s);
    void SetCache(const engine::EngineStats& stats);
    void SetSteps(const engine::EngineStats& stats);
    static void Raise(Counter& counter, double to) {
        if (to > counter.Value()) counter.Increment(to - counter.Value());
    }

    std::string prefix;
    prometheus::Labels labels;
    MetricsInfo info;
    Bounds token_bounds;
    prometheus::Registry registry;
    std::mutex mutex;  // for Text: concurrent scrapes must not raise a counter twice
    // gauges of SetNow: of this scrape, and of the last one
    std::vector<std::pair<prometheus::Family<Gauge>*, Gauge*>> passing, passed;
    prometheus::Family<Gauge>& cache_config =
        MakeFamily("cache_config_info", "Settings of the KV cache.");
    prometheus::Family<Gauge>& rank_wait =
        MakeFamily("rank_wait_seconds", "Time a rank waited for other ranks.");
    prometheus::Family<Gauge>& rank_step =
        MakeFamily("rank_step_seconds", "Time a rank spent in steps.");
    prometheus::Family<Gauge>& rank_memory =
        MakeFamily("rank_memory_bytes", "Memory of a rank's process.");

    Gauge& running = MakeGauge("num_requests_running", "Running sequences.");
    Gauge& waiting = MakeGauge("num_requests_waiting", "Waiting sequences.");
    Gauge& prompt_left = MakeGauge("prompt_tokens_left",
                                   "Prompt tokens of all sequences that are not computed yet.");
    Gauge& prompt_left_s =
        MakeGauge("prompt_seconds_left", "Predicted time of prompt_tokens_left; NaN if unknown.");
    Gauge& kv_usage = MakeGauge("kv_cache_usage_perc", "Share of KV cache pages in use; 1 is all.");
    Gauge& old_kv_usage =
        MakeGauge("gpu_cache_usage_perc", "Same as kv_cache_usage_perc, under its older name.");
    Gauge& ranks = MakeGauge("ranks", "Ranks of the cluster that are up.");
    Gauge& ready = MakeGauge("serving", "1 while the cluster serves, else 0.");
    Counter& preemptions = MakeCounter("num_preemptions_total", "Sequences preempted.");
    Counter& prompt_tokens = MakeCounter("prompt_tokens_total", "Prompt tokens.");
    Counter& generated_tokens = MakeCounter("generation_tokens_total", "Generated tokens.");
    Counter& asked =
        MakeCounter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
    Counter& hits =
        MakeCounter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
    Counter& old_asked = MakeCounter("gpu_prefix_cache_queries_total",
                                     "Same as prefix_cache_queries, under its older name.");
    Counter& old_hits = MakeCounter("gpu_prefix_cache_hits_total",
                                    "Same as prefix_cache_hits, under its older name.");
    Counter& kept_asked = MakeCounter("external_prefix_cache_queries_total",
                                      "Prompt tokens looked up in --cache-ram and --cache-dir.");
    Counter& kept_hits = MakeCounter("external_prefix_cache_hits_total",
                                     "Prompt tokens restored from --cache-ram and --cache-dir.");
    Counter& kept_read =
        MakeCounter("kept_pages_read_bytes_total",
                    "Bytes that rank 0 restored from --cache-ram and --cache-dir.");
    Counter& kept_written = MakeCounter("kept_pages_written_bytes_total",
                                        "Bytes that rank 0 kept in --cache-ram and --cache-dir.");
    Counter& kept_dropped = MakeCounter(
        "kept_pages_dropped_total",
        "Pages that rank 0 could not write to --cache-dir: the disk is full or too slow.");
    Counter& kept_damaged =
        MakeCounter("kept_pages_damaged_total", "Damaged pages that rank 0 found in --cache-dir.");
    Counter& steps = MakeCounter("steps_total", "Steps run by all ranks.");
    Counter& step_rows = MakeCounter("step_rows_total", "Rows (tokens) in steps.");
    Counter& step_s = MakeCounter("step_seconds_total", "Time spent in steps.");
    Counter& plan_s = MakeCounter("schedule_seconds_total", "Time spent in the scheduler.");
    Counter& say_s =
        MakeCounter("sample_seconds_total", "Time spent in sampling and writing answers.");
    Counter& drafts = MakeCounter("spec_decode_num_drafts_total",
                                  "Drafts verified: one per sequence and step with draft tokens.");
    Counter& drafted = MakeCounter("spec_decode_num_draft_tokens_total", "Tokens guessed.");
    Counter& accepted =
        MakeCounter("spec_decode_num_accepted_tokens_total", "Accepted draft tokens.");
    Counter& recoveries =
        MakeCounter("recoveries_total", "Losses of ranks from which the cluster recovered.");
    Histogram& step_sizes = MakeHistogram("iteration_tokens_total", "Tokens per step.",
                                          Bounds(engine::EngineCounters::kStepRowBounds.begin(),
                                                 engine::EngineCounters::kStepRowBounds.end()));
    // Counts that step_sizes already includes.
    decltype(engine::EngineCounters::steps_by_rows) steps_seen{};
    int64_t step_rows_seen = 0;
    Histogram& first = MakeHistogram("time_to_first_token_seconds",
                                     "Time from request to first token.", kFirstTokenSeconds);
    Histogram& gap = MakeHistogram("inter_token_latency_seconds",
                                   "Time between two tokens of an answer.", kTokenSeconds);
    Histogram& old_gap =
        MakeHistogram("time_per_output_token_seconds",
                      "Same as inter_token_latency_seconds, under its older name.", kTokenSeconds);
    Histogram& mean_gap =
        MakeHistogram("request_time_per_output_token_seconds",
                      "Mean time between two tokens of an answer.", kTokenSeconds);
    Histogram& total = MakeHistogram("e2e_request_latency_seconds",
                                     "Time from request to last token.", kRequestSeconds);
    Histogram& queue = MakeHistogram("request_queue_time_seconds",
                                     "Time from request to first step.", kRequestSeconds);
    Histogram& inference = MakeHistogram("request_inference_time_seconds",
                                         "Time from first step to last token.", kRequestSeconds);
    Histogram& prefill = MakeHistogram("request_prefill_time_seconds",
                                       "Time from first step to first token.", kRequestSeconds);
    Histogram& decode = MakeHistogram("request_decode_time_seconds",
                                      "Time from first to last token.", kRequestSeconds);
    Histogram& prompt = MakeHistogram("request_prompt_tokens", "Tokens per prompt.", token_bounds);
    Histogram& computed = MakeHistogram(
        "request_prefill_kv_computed_tokens",
        "Prompt tokens that were not in the prefix cache, per request.", token_bounds);
    Histogram& answer =
        MakeHistogram("request_generation_tokens", "Tokens per answer.", token_bounds);
    Histogram& longest = MakeHistogram("request_max_num_generation_tokens",
                                       "Tokens of the longest answer of a request.", token_bounds);
    Histogram& choices = MakeHistogram("request_params_n", "Answers requested (n).", kChoices);
    Histogram& most =
        MakeHistogram("request_params_max_tokens",
                      "Limit of tokens per answer, for requests that set one.", token_bounds);
};

Metrics::Metrics(const std::string& prefix, const MetricsInfo& info)
    : impl_(std::make_unique<Impl>(prefix, info)) {}

Metrics::~Metrics() = default;

void Metrics::Impl::Observe(const AnswerRecord& record, const engine::Ending& ending) {
    total.Observe(ending.total_s);
    queue.Observe(ending.queue_s);
    inference.Observe(ending.total_s - ending.queue_s);
    prompt.Observe(Real(ending.prompt_tokens));
    computed.Observe(Real(ending.prompt_tokens - ending.cached_tokens));
    if (ending.finish == "embedding") {
        // vLLM also reports "stop" here.
        return Ended("stop", 1);
    }
    Ended(ending.finish == "eos" || ending.finish == "stop" ? "stop" : "length", 1);
    first.Observe(ending.first_token_s);
    prefill.Observe(ending.first_token_s - ending.queue_s);
    decode.Observe(ending.total_s - ending.first_token_s);
    answer.Observe(Real(ending.generated_tokens));
    if (record.max_tokens > 0) most.Observe(Real(record.max_tokens));
    if (ending.generated_tokens > 1) {
        mean_gap.Observe((ending.total_s - ending.first_token_s) /
                         Real(ending.generated_tokens - 1));
    }
}

// At once, because the engine's thread ends an answer, which may have many tokens.
void Metrics::Impl::ObserveGaps(const std::vector<float>& gaps_s) {
    if (gaps_s.empty()) return;
    std::vector<double> counts(kTokenSeconds.size() + 1);
    double sum = 0;
    for (const float gap_s : gaps_s) {
        const auto bound = std::ranges::lower_bound(kTokenSeconds, static_cast<double>(gap_s));
        ++counts[static_cast<size_t>(bound - kTokenSeconds.begin())];
        sum += static_cast<double>(gap_s);
    }
    for (Histogram* histogram : {&gap, &old_gap}) histogram->ObserveMultiple(counts, sum);
}

void Metrics::Add(const AnswerRecord& record, const std::string& adapter) {
    Impl& m = *impl_;
    if (!adapter.empty()) {
        m.MakeCounter("lora_requests_total", "Requests with a LoRA adapter, by adapter.",
                      {{"lora_name", adapter}})
            .Increment();
    }
    int64_t longest = -1;
    for (const engine::Ending& ending : record.endings) {
        m.Observe(record, ending);
        if (ending.finish != "embedding") longest = std::max(longest, ending.generated_tokens);
    }
    if (longest >= 0) {
        m.longest.Observe(Real(longest));
        m.choices.Observe(Real(record.n));
    }
    m.ObserveGaps(record.gaps_s);
    if (record.error.empty()) return;
    m.Ended(record.cancelled ? "abort" : "error", 1);
    m.MakeCounter("request_failed_total", "Requests that failed.").Increment();
}

void Metrics::AddRefused(int status) {
    impl_
        ->MakeCounter("request_refused_total", "Refused requests, by status.",
                      {{"status", std::to_string(status)}})
        .Increment();
}

void Metrics::Impl::SetCache(const engine::EngineStats& stats) {
    const engine::ScheduleStats& s = stats.schedule;
    const int64_t used = s.pages - s.free_pages - s.idle_pages;
    kv_usage.Set(s.pages > 0 ? Real(used) / Real(s.pages) : 0);
    old_kv_usage.Set(kv_usage.Value());
    for (Counter* counter : {&asked, &old_asked}) Raise(*counter, Real(s.cache_asked));
    for (Counter* counter : {&hits, &old_hits}) Raise(*counter, Real(s.cache_hit));
    Raise(kept_asked, Real(s.kept_asked));
    Raise(kept_hits, Real(s.kept_hit));
    Raise(kept_read, Real(stats.kept.read_bytes));
    Raise(kept_written, Real(stats.kept.written_bytes));
    Raise(kept_dropped, Real(stats.kept.dropped));
    Raise(kept_damaged, Real(stats.kept.damaged));
    SetNow(cache_config, 1,
           {{"block_size", std::to_string(info.page_tokens)},
            {"num_gpu_blocks", std::to_string(s.pages)},
            {"cache_dtype", info.kv_type},
            {"enable_prefix_caching", info.prefix_cache ? "True" : "False"}});
}

void Metrics::Impl::SetSteps(const engine::EngineStats& stats) {
    Raise(steps, Real(stats.steps));
    Raise(step_rows, Real(stats.step_rows));
    Raise(step_s, stats.step_s);
    if (stats.step_rows < step_rows_seen) return;  // older than the values of the previous scrape
    std::vector<double> more;
    for (size_t i = 0; i < steps_seen.size(); ++i) {
        more.push_back(Real(stats.steps_by_rows[i] - steps_seen[i]));
    }
    step_sizes.ObserveMultiple(more, Real(stats.step_rows - step_rows_seen));
    steps_seen = stats.steps_by_rows;
    step_rows_seen = stats.step_rows;
}

std::string Metrics::Text(const engine::EngineStats& stats) {
    Impl& m = *impl_;
    const std::lock_guard lock(m.mutex);
    const engine::ScheduleStats& s = stats.schedule;
    m.running.Set(Real(s.running));
    m.waiting.Set(Real(s.waiting));
    m.prompt_left.Set(Real(stats.prompt_tokens_left));
    m.prompt_left_s.Set(stats.prompt_seconds_left < 0 ? std::numeric_limits<double>::quiet_NaN()
                                                      : stats.prompt_seconds_left);
    m.SetCache(stats);
    m.SetSteps(stats);
    m.ranks.Set(Real(std::ranges::count(stats.members.ranks, cluster::MemberState::kUp,
                                        &cluster::Member::state)));
    m.ready.Set(stats.state == engine::EngineState::kServing ? 1 : 0);
    Impl::Raise(m.preemptions, Real(s.preemptions));
    Impl::Raise(m.prompt_tokens, Real(stats.prompt_tokens));
    Impl::Raise(m.generated_tokens, Real(stats.generated_tokens));
    Impl::Raise(m.plan_s, stats.plan_s);
    Impl::Raise(m.say_s, stats.say_s);
    const engine::DraftCounts& d = stats.drafts;
    Impl::Raise(m.drafts, Real(d.drafts));
    Impl::Raise(m.drafted, Real(d.drafted));
    Impl::Raise(m.accepted, Real(d.accepted));
    for (size_t i = 0; i < d.by_place.size(); ++i) {
        Impl::Raise(m.MakeCounter("spec_decode_num_accepted_tokens_per_pos_total",
                                  "Accepted draft tokens, by position in the draft.",
                                  {{"position", std::to_string(i)}}),
                    Real(d.by_place[i]));
    }
    Impl::Raise(m.recoveries, Real(stats.recovered));
    for (const engine::RankReport& r : stats.ranks) {
        const prometheus::Labels rank{{"rank", std::to_string(r.rank)}, {"host", r.host}};
        m.SetNow(m.rank_wait, r.wait_s, rank);
        m.SetNow(m.rank_step, r.step_s, rank);
        m.SetNow(m.rank_memory, Real(static_cast<int64_t>(r.rss_bytes)), rank);
    }
    m.ForgetPassed();
    return prometheus::TextSerializer().Serialize(m.registry.Collect());
}

}  // namespace weft::serve

#include "serve/api/status.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <unordered_map>

namespace weft::serve {
namespace {

const char* StateName(engine::EngineState state) {
    switch (state) {
        case engine::EngineState::kServing: return "serving";
        case engine::EngineState::kRecovering: return "recovering";
        case engine::EngineState::kDraining: return "draining";
        case engine::EngineState::kOver: return "over";
    }
    return "?";
}

const char* StateName(cluster::MemberState state) {
    switch (state) {
        case cluster::MemberState::kUp: return "up";
        case cluster::MemberState::kLost: return "lost";
        case cluster::MemberState::kRejoining: return "rejoining";
    }
    return "?";
}

Json MemberJson(const cluster::Member& member) {
    return {{"rank", member.rank},
            {"host", member.host},
            {"state", StateName(member.state)},
            {"since_s", member.since_s},
            {"why", member.why.empty() ? Json(nullptr) : Json(member.why)}};
}

void AddReport(const engine::RankReport& r, double power_w, Json& rank) {
    const bool up = rank["state"] == "up";
    rank.update({{"host", r.host},
                 {"device", r.device},
                 {"hardware", r.hardware},
                 {"stage", r.stage},
                 {"tensor_rank", r.tensor_rank},
                 {"share", r.share},
                 {"rss_bytes", r.rss_bytes},
                 {"weight_bytes", r.weight_bytes},
                 {"kv_bytes", r.kv_bytes},
                 {"load_s", r.load_s},
                 {"step_s", r.step_s},
                 {"wait_s", r.wait_s},
                 {"power_w", power_w < 0 || !up ? Json(nullptr) : Json(power_w)}});
}

// Histogram of all-reduce times from evenly spaced quantiles: count per bucket up to each bound;
// the last bucket has no bound.
Json SyncJson(const engine::EngineStats& stats) {
    static constexpr double kBoundsUs[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4};
    std::vector<int64_t> counts(std::size(kBoundsUs) + 1);
    for (const engine::RankReport& r : stats.ranks) {
        for (const double us : r.all_reduce_us) {
            const auto* bound = std::lower_bound(std::begin(kBoundsUs), std::end(kBoundsUs), us);
            ++counts[static_cast<size_t>(bound - std::begin(kBoundsUs))];
        }
    }
    return {{"bounds", kBoundsUs}, {"counts", counts}};
}

// Adds the ranks' last reports, unless the number of ranks has changed since.
Json RanksJson(const engine::EngineStats& stats) {
    Json ranks = Json::array();
    std::unordered_map<int, size_t> reports;  // by rank
    const bool same = stats.ranks.size() == stats.members.ranks.size();
    for (size_t i = 0; same && i < stats.ranks.size(); ++i) reports[stats.ranks[i].rank] = i;
    for (const cluster::Member& member : stats.members.ranks) {
        Json rank = MemberJson(member);
        if (const auto found = reports.find(member.rank); found != reports.end()) {
            AddReport(stats.ranks[found->second], stats.power_w[found->second], rank);
        }
        ranks.push_back(std::move(rank));
    }
    return ranks;
}

// Lost ranks that the cluster continues without, by their former numbers.
Json DepartedJson(const engine::EngineStats& stats) {
    Json list = Json::array();
    for (const cluster::Member& member : stats.members.departed) {
        Json rank = MemberJson(member);
        rank["epoch"] = member.epoch;
        list.push_back(std::move(rank));
    }
    return list;
}

// The loss that the cluster is recovering from.
Json LossJson(const engine::EngineStats& stats) {
    if (stats.state != engine::EngineState::kRecovering) return nullptr;
    return {{"time_s", stats.lost_s}, {"text", stats.loss}};
}

Json ErrorsJson(const std::vector<RequestError>& list) {
    Json errors = Json::array();
    for (const RequestError& e : list) {
        errors.push_back({{"time_s", e.unix_s},
                          {"id", e.id},
                          {"method", e.method},
                          {"path", e.path},
                          {"status", e.status},
                          {"text", e.text}});
    }
    return errors;
}

}  // namespace

std::optional<ApiError> WhyNotServing(const engine::EngineStats& stats) {
    switch (stats.state) {
        case engine::EngineState::kServing: return {};
        case engine::EngineState::kRecovering:
            if (stats.joining) {
                return ApiError{503, "Hosts are joining; the cluster will be back in a moment.", "",
                                "recovering"};
            }
            return ApiError{503, "A rank was lost; the cluster is recovering.", "", "recovering"};
        case engine::EngineState::kDraining:
            return ApiError{503, "The server is shutting down.", "", "draining"};
        case engine::EngineState::kOver: return ApiError{503, stats.error, "", "not_ready"};
    }
    return {};
}

Json StatusJson(const Served& served, const std::vector<RequestError>& errors) {
    served.engine->WantReports();
    const engine::EngineStats stats = served.engine->stats();
    const engine::ScheduleStats& s = stats.schedule;
    Json recoveries = Json::array();
    for (size_t i = 0; i < stats.recoveries.size(); ++i) {
        const engine::Recovery& r = stats.recoveries[i];
        recoveries.push_back({{"epoch", r.epoch},
                              {"lost_ranks", r.lost},
                              {"back_s", stats.recovered_s[i]},
                              {"ranks", r.ranks},
                              {"joined", r.joined.size()},
                              {"seconds", r.seconds},
                              {"text", r.text}});
    }
    return {{"version", WEFT_VERSION},
            {"model", served.name},
            {"adapters", served.adapters},
            {"context", served.engine->context()},
            {"state", StateName(stats.state)},
            {"error", stats.error},
            {"uptime_s", std::time(nullptr) - served.created_s},
            {"layout", {{"tp", stats.layout.tp}, {"pp", stats.layout.pp}, {"ep", stats.layout.ep}}},
            {"transport", stats.transport},
            {"max_seqs", stats.max_seqs},
            {"ranks", RanksJson(stats)},
            {"departed", DepartedJson(stats)},
            {"sync_us", SyncJson(stats)},
            {"running", s.running},
            {"waiting", s.waiting},
            {"prompts_left",
             {{"tokens", stats.prompt_tokens_left},
              {"seconds",
               stats.prompt_seconds_left < 0 ? Json(nullptr) : Json(stats.prompt_seconds_left)}}},
            {"kv_pages", {{"all", s.pages}, {"free", s.free_pages}, {"idle", s.idle_pages}}},
            {"prefix_cache", {{"asked_tokens", s.cache_asked}, {"hit_tokens", s.cache_hit}}},
            {"kept_pages",
             {{"asked_tokens", s.kept_asked},
              {"hit_tokens", s.kept_hit},
              {"read_bytes", stats.kept.read_bytes},
              {"written_bytes", stats.kept.written_bytes},
              {"held_bytes", stats.kept.held_bytes},
              {"dropped", stats.kept.dropped},
              {"damaged", stats.kept.damaged}}},
            {"preemptions", s.preemptions},
            {"requests",
             {{"ended", stats.ended}, {"failed", stats.failed}, {"cancelled", stats.cancelled}}},
            {"tokens", {{"prompt", stats.prompt_tokens}, {"generated", stats.generated_tokens}}},
            {"steps", {{"count", stats.steps}, {"rows", stats.step_rows}}},
            {"speculation",
             {{"drafts", stats.drafts.drafts},
              {"drafted", stats.drafts.drafted},
              {"accepted", stats.drafts.accepted}}},
            {"seconds",
             {{"steps", stats.step_s},
              {"plans", stats.plan_s},
              {"saying", stats.say_s},
              {"sampling", stats.sample_s}}},
            {"loss", LossJson(stats)},
            {"recoveries", std::move(recoveries)},
            {"errors", ErrorsJson(errors)}};
}

}  // namespace weft::serve
